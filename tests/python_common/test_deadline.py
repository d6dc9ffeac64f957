"""What hangs ends: locks, leases of other machines, steps, statements and dbt; and the error names what hung."""

import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import make_dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, get_type_hints

import pytest
from pyiceberg.catalog import Catalog

from python_common.catalog.catalog import load_catalog
from python_common.catalog.small_table import SmallTable
from python_common.config.settings import Settings
from python_common.deadline import step_within
from python_common.errors import DeadlineError, UserError
from python_common.locks import lease, lock
from python_common.locks.lease import Lease, LeaseLostError, leased
from python_common.locks.lock import locked
from python_common.spark import thrift
from python_common.weeks import IsoWeek
from python_dbt import run
from python_dbt.project import Project
from tests.support.race import until

pytestmark = pytest.mark.stack


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKEHOUSE_HOME", str(tmp_path))
    monkeypatch.setattr(lock, "WAIT_SECONDS", 0.2)
    monkeypatch.setattr(thrift, "STATEMENT_SECONDS", 0.2)


@pytest.fixture
def catalog(offline_settings: Settings) -> Catalog:
    return load_catalog(offline_settings, create=True)


def test_a_step_that_hangs_ends() -> None:
    """Whatever it waits for: here a queue that no handler of errors, and no clean-up, ends."""
    with (
        pytest.raises(DeadlineError, match="build has not ended within 1 s"),
        step_within("build", 0.2),
    ):
        try:
            threading.Event().wait()
        except Exception:
            threading.Event().wait()


def test_a_step_whose_clean_up_hangs_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("python_common.deadline.AGAIN_SECONDS", 0.2)
    release = threading.Event()
    with (
        pytest.raises(DeadlineError),
        step_within("ingest", 0.2),
        ThreadPoolExecutor(1) as pool,
    ):
        pool.submit(release.wait)
        threading.Event().wait()
    release.set()


def test_a_step_in_time_is_left_alone() -> None:
    with step_within("build", 0.1):
        pass
    time.sleep(0.2)


def test_a_lock_is_not_waited_for_for_ever(caplog: pytest.LogCaptureFixture) -> None:
    with (
        locked("weekly"),
        pytest.raises(DeadlineError, match="Another weekly has not ended"),
        locked("weekly"),
    ):
        pass
    assert caplog.messages == ["waiting for another weekly"]


def test_a_server_that_is_silent_is_not_waited_for_for_ever(
    offline_settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(thrift, "GRACE_SECONDS", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        settings = offline_settings.changed(thrift_port=silent.getsockname()[1])
        with pytest.raises(UserError, match="does not answer"), thrift.connect(settings):
            pass


def test_a_dbt_that_hangs_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dbt = tmp_path / "dbt"
    dbt.write_text(f"#!/bin/sh\necho $$ > {tmp_path}/pid\nexec sleep 60\n")
    dbt.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setattr(run, "BUILD_SECONDS", 1.0)
    project = Project(tmp_path, {"PATH": "/usr/bin:/bin"})
    with pytest.raises(DeadlineError, match="dbt build has not ended within 1 s"):
        run.build_all(project, [IsoWeek(2020, 53)])
    pid = (tmp_path / "pid").read_text().strip()
    assert subprocess.run(["kill", "-0", pid], capture_output=True, check=False).returncode != 0


@pytest.fixture
def other_machine(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lease]:
    """A lease that another machine has acquired."""
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(socket, "gethostname", lambda: "elsewhere")
        other = Lease(catalog, "weekly", "weekly 2020-W53")
    assert other.take() is None
    yield other


def test_another_machine_is_waited_for_and_named(
    catalog: Catalog, other_machine: Lease, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(lease, "ASKED_AFTER_SECONDS", 0.05)
    with pytest.raises(DeadlineError, match="The weekly of elsewhere:"), leased(catalog, "weekly", "test"):
        pass
    [message] = caplog.messages
    assert message.startswith("waiting for the weekly of elsewhere:")
    with leased(catalog, "another name", "test"):
        pass
    threading.Timer(0.5, other_machine.give_back).start()
    monkeypatch.setattr(lock, "WAIT_SECONDS", 30.0)
    with leased(catalog, "weekly", "test") as mine:
        mine.require()
        assert other_machine.take().startswith(f"{mine._holder} (test, since ")
    assert lease.TABLE.rows(catalog)["weekly"].holder is None


def test_a_lease_of_a_dead_machine_ends_and_one_of_this_machine_is_taken_at_once(
    catalog: Catalog, other_machine: Lease
) -> None:
    # A run that was killed here leaves its lease, and its lock is free.
    killed = Lease(catalog, "export", "test")
    assert killed.take() is None
    assert Lease(catalog, "export", "test").take() is None

    def expire(rows: dict) -> dict:
        return {name: replace(row, expires_at=datetime.now(UTC)) for name, row in rows.items()}

    lease.TABLE.change(catalog, expire)
    with leased(catalog, "weekly", "test"):
        pass


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


def test_a_lease_table_with_a_former_column_is_used(catalog: Catalog) -> None:
    hints = get_type_hints(lease.LeaseRow, include_extras=True)
    columns = [(name, hints[name]) for name in ("name", "holder", "expires_at")]
    columns += [("run", Annotated[str | None, "a column of 0.6"])]
    columns += [(name, hints[name]) for name in ("number", "command", "since")]
    row = make_dataclass("Former", columns)("weekly", None, datetime.now(UTC), "killed", 6, "test", datetime.now(UTC))
    SmallTable(lease.TABLE.identifier, type(row)).change(catalog, lambda _: {"weekly": row})
    with leased(catalog, "weekly", "export run") as mine:
        taken = lease.TABLE.rows(catalog)["weekly"]
        assert (taken.number, taken.command, mine.number) == (7, "export run", 7)


def test_what_dbt_builds_is_maintained_when_no_other_machine_is_at_work(
    offline_settings: Settings, other_machine: Lease, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "ASKED_AFTER_SECONDS", 0.05)

    def alone() -> AbstractContextManager[Lease]:
        return lease.alone(load_catalog(offline_settings), "weekly", "ingest maintain")

    with pytest.raises(DeadlineError, match="The weekly of elsewhere:"), alone():
        pass
    other_machine.give_back()
    with alone():
        assert other_machine.take()


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
