"""Machines on one lake: one works and the others name it; one that was stopped for too long does nothing more."""

import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog

from python_common.catalog.catalog import load_catalog
from python_common.config.settings import Settings
from python_common.errors import DeadlineError
from python_common.locks import lease, lock
from python_common.locks.lease import Lease, LeaseLostError, leased
from tests.support.race import until


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKEHOUSE_HOME", str(tmp_path))
    monkeypatch.setattr(lock, "WAIT_SECONDS", 0.2)


@pytest.fixture
def catalog(offline_settings: Settings) -> Catalog:
    return load_catalog(offline_settings, create=True)


@pytest.fixture
def other_machine(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> Lease:
    """A lease that another machine has acquired."""
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(socket, "gethostname", lambda: "elsewhere")
        other = Lease(catalog, "weekly", "weekly 2020-W53")
    assert other.take() is None
    return other


def expire(catalog: Catalog) -> None:
    """End the time of all leases."""
    now = datetime.now(UTC)
    lease.TABLE.change(catalog, lambda rows: {name: replace(row, expires_at=now) for name, row in rows.items()})


def test_another_machine_is_waited_for_and_named(
    catalog: Catalog, other_machine: Lease, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(lease, "ASKED_AFTER_SECONDS", 0.05)
    named = f"he weekly of {other_machine._holder} (weekly 2020-W53, since 20"
    with pytest.raises(DeadlineError) as raised, leased(catalog, "weekly", "test"):
        pass
    assert str(raised.value).startswith(f"T{named}")
    with leased(catalog, "another name", "test"):
        pass

    def give_back_when_named() -> None:
        until(lambda: caplog.messages)
        other_machine.give_back()

    caplog.clear()
    monkeypatch.setattr(lock, "WAIT_SECONDS", 30.0)
    threading.Thread(target=give_back_when_named).start()
    with leased(catalog, "weekly", "test") as mine:
        [message] = caplog.messages
        assert message.startswith(f"waiting for t{named}")
        mine.require()
        assert other_machine.take().startswith(f"{mine._holder} (test, since ")
    assert lease.TABLE.rows(catalog)["weekly"].holder is None


def test_a_run_takes_the_lease_of_a_killed_one_of_its_machine(catalog: Catalog) -> None:
    """A clone of a machine does so as well: the run that was there first ends."""
    first, second = (Lease(catalog, "export", "test") for _ in range(2))
    assert (first.take(), second.take()) == (None, None)
    with pytest.raises(LeaseLostError):
        first.require()
    second.require()


def test_an_interrupted_run_is_not_waited_for(catalog: Catalog, other_machine: Lease) -> None:
    """Nor is a machine that died with its lease."""
    expire(catalog)
    with pytest.raises(KeyboardInterrupt), leased(catalog, "weekly", "test"):
        raise KeyboardInterrupt
    assert other_machine.take() is None


def test_a_lease_that_is_taken_over_is_noticed(
    catalog: Catalog, other_machine: Lease, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "RENEWED_AFTER_SECONDS", 0.05)
    other_machine.give_back()
    with leased(catalog, "weekly", "test") as mine:
        before = lease.TABLE.rows(catalog)["weekly"].expires_at
        until(lambda: lease.TABLE.rows(catalog)["weekly"].expires_at > before)
        mine.require()
        lease.TABLE.change(catalog, lambda rows: {"weekly": replace(rows["weekly"], holder="elsewhere")})
        with pytest.raises(LeaseLostError, match=r"and elsewhere .* has it"):
            mine.require()
    # What is another's by now is not given back.
    assert lease.TABLE.rows(catalog)["weekly"].holder == "elsewhere"


def test_a_stopped_run_that_no_other_waited_for_goes_on(catalog: Catalog) -> None:
    with leased(catalog, "weekly", "test") as mine:
        expire(catalog)
        mine.require()
        assert lease.TABLE.rows(catalog)["weekly"].expires_at > datetime.now(UTC)


def test_a_renewal_takes_no_lease_that_was_given_back(catalog: Catalog) -> None:
    mine = Lease(catalog, "weekly", "test")
    assert mine.take() is None
    assert mine.renew()
    mine.give_back()
    assert not mine.renew()
    with pytest.raises(LeaseLostError, match="another run has had it since"):
        mine.require()
    row = lease.TABLE.rows(catalog)["weekly"]
    assert row.number == 1
    # An earlier release takes it by the time alone.
    assert row.expires_at <= datetime.now(UTC)


def test_of_machines_that_ask_at_once_one_gets_the_lease(
    offline_settings: Settings, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    machines = []
    for number in range(4):
        monkeypatch.setattr(socket, "gethostname", lambda number=number: f"machine {number}")
        machines.append(Lease(load_catalog(offline_settings), "weekly", "test"))
    with ThreadPoolExecutor(len(machines)) as pool:
        answers = [*pool.map(Lease.take, machines)]
    assert answers.count(None) == 1
