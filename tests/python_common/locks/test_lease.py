"""Machines on one lake: one works and the others name it; one that was stopped for too long does nothing more."""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pytest

from python_common.catalog.catalog import load_catalog
from python_common.config.settings import Settings
from python_common.locks import lease
from python_export.publishing.manifest import published
from python_export.publishing.target import open_target
from tests.support.machines import LASTS_SECONDS, WORK_IN_STEPS, Machine, first_to_speak
from tests.support.race import until
from tests.support.services.http_server import Handler, serving
from tests.support.services.spark_jvm import separate_session
from tests.support.versions import publish_content

Start = Callable[..., Machine]
PUBLISH = """
from tests.support.hostile_rows import draft
from tests.support.versions import stage
from python_export.publishing.publish import publish
from python_export.publishing.target import open_target
target = open_target(settings)
with lease.leased(catalog, "weekly", "export run for 2020-W53") as mine:
    def keep(manifest):
        mine.require()
        wait_for_go()
    content = stage(target, sys.argv[1])
    report(publish(target, content, draft("2020-W53"), [], target.staging / "scratch", keep).manifest.path)
"""

LASTS_AN_HOUR = """
lease.LASTS = timedelta(hours=1)
with lease.leased(catalog, "weekly", "export run for 2020-W53"):
    wait_for_go()
"""

CLOCK_STEPS_BACK = """
with lease.leased(catalog, "weekly", "weekly 2020-W53") as mine:
    for seconds in (301, 240):
        set_clock(seconds)
        assert mine.renew()
    report("renewed")
"""

NOTIFY = """
from python_export.notify.deliver import notify

wait_for_go()
report([str(error) for error in notify(settings, environment(), catalog)])
"""


@pytest.fixture
def start_machine(offline_settings: Settings, tmp_path: Path) -> Iterator[Start]:
    """Start a machine by its name, with the body of what it does."""
    load_catalog(offline_settings, create=True)
    machines = []

    def begin(name: str, body: str, **env: str) -> Machine:
        machines.append(Machine(offline_settings, name, tmp_path, body, **env))
        return machines[-1]

    yield begin
    for machine in machines:
        machine.process.kill()
        machine.process.communicate()


def test_of_two_machines_one_works_and_the_other_names_it(start_machine: Start, tmp_path: Path) -> None:
    first = start_machine("first", WORK_IN_STEPS)
    first.ready()
    second = start_machine("second", f"lock.WAIT_SECONDS = 5.0\n{WORK_IN_STEPS}")
    waiting = second.line()
    holder = f"he weekly of first:{tmp_path / 'first'} (weekly 2020-W53, since 20"
    assert waiting.startswith(f"waiting for t{holder}"), waiting
    assert waiting.endswith(" UTC)")
    # It is renewed, however long it takes.
    [error] = second.rest()
    assert error.startswith(f"T{holder}"), error
    first.go()
    first.go()
    assert first.rest() == ["first", "ready", "second"]


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)])
def test_a_run_that_a_signal_ends_is_not_waited_for(start_machine: Start, number: signal.Signals) -> None:
    first = start_machine("first", LASTS_AN_HOUR)
    first.ready()
    second = start_machine("second", LASTS_AN_HOUR)
    assert second.line().startswith("waiting for the weekly of first:")
    first.process.send_signal(number)
    first.rest()
    assert first.process.returncode == -signal.SIGINT
    second.ready()


@pytest.mark.slow
def test_a_machine_that_was_stopped_for_longer_than_its_lease_does_nothing_more(
    start_machine: Start, tmp_path: Path
) -> None:
    first = start_machine("first", WORK_IN_STEPS)
    first.ready()
    first.go()
    assert [first.line(), first.line()] == ["first", "ready"]
    first.stop()
    second = start_machine("second", WORK_IN_STEPS)
    second.ready()
    first.go()
    first.wake()
    [error] = first.rest()
    assert error.startswith(
        f"This run was stopped for longer than its lease weekly of ops.leases lasts, and second:{tmp_path / 'second'}"
        " (weekly 2020-W53, since 20"
    ), error
    second.go()
    second.go()
    assert second.rest() == ["first", "ready", "second"]


def test_a_stopped_machine_that_no_other_waited_for_goes_on(start_machine: Start) -> None:
    first = start_machine("first", WORK_IN_STEPS)
    first.ready()
    first.stop()
    time.sleep(LASTS_SECONDS + 0.5)
    first.go()
    first.wake()
    first.go()
    assert first.rest() == ["first", "ready", "second"]


@pytest.mark.slow
def test_of_two_machines_of_one_name_the_older_run_ends(start_machine: Start) -> None:
    """A clone of a machine takes the lease at once, as a run on the machine of a killed one does."""
    first = start_machine("clone", WORK_IN_STEPS)
    first.ready()
    second = start_machine("clone", WORK_IN_STEPS.replace("2020-W53", "2021-W01"))
    second.ready()
    first.go()
    assert "weekly 2021-W01" in first.rest()[0]
    second.go()
    second.go()
    assert second.rest()[-1] == "second"


@pytest.mark.slow
def test_clocks_that_differ_write_no_metadata_that_java_refuses(
    start_machine: Start, offline_settings: Settings
) -> None:
    for ahead, behind, expected in (("61", "0", "second"), ("240", "0", "and the clock of behind shows")):
        first = start_machine("ahead", WORK_IN_STEPS, CLOCK_AHEAD=ahead)
        first.go()
        first.go()
        assert first.rest()[-1] == "second"
        second = start_machine("behind", WORK_IN_STEPS, CLOCK_AHEAD=behind)
        second.go()
        second.go()
        assert expected in second.rest()[-1]
    assert start_machine("ahead", CLOCK_STEPS_BACK, CLOCK_AHEAD="240").rest() == ["renewed"]
    table = load_catalog(offline_settings).load_table(lease.TABLE.identifier)
    for log in (table.metadata.snapshot_log, table.metadata.metadata_log):
        stamps = [entry.timestamp_ms for entry in log]
        assert all(later - earlier >= -60_000 for earlier, later in pairwise([*stamps, table.metadata.last_updated_ms]))
    with separate_session(offline_settings, "clocks") as spark:
        assert spark.table("lake.ops.leases").count() == 1


@pytest.mark.slow
def test_a_version_of_a_machine_that_is_stopped_after_it_was_asked_is_refused_by_its_number(
    start_machine: Start, offline_settings: Settings
) -> None:
    old = start_machine("old", PUBLISH)
    old.ready()
    old.stop()
    new = start_machine("new", PUBLISH)
    new.ready()
    new.go()
    assert new.rest() == ["events/2020-W53/v1"]
    old.go()
    old.wake()
    [error] = old.rest()
    assert error.startswith("Another export has published"), error
    [only] = published(open_target(offline_settings))
    assert only.bytes == len("new")


@pytest.mark.slow
def test_of_two_machines_one_notifies_and_one_that_was_stopped_sends_nothing_more(
    start_machine: Start, offline_settings: Settings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("LAKEHOUSE_HOME", str(tmp_path))
    target = open_target(offline_settings)
    for week in ("2020-W53", "2021-W01"):
        publish_content(target, "a", week)
    with webhook() as (url, keys_received, answer):
        # A stack that the process of the tests has started has a mail server, which is not asked here.
        first = start_machine("first", NOTIFY, LAKEHOUSE_WEBHOOK_URL=url, LAKEHOUSE_SMTP_HOST="")
        second = start_machine("second", NOTIFY, LAKEHOUSE_WEBHOOK_URL=url, LAKEHOUSE_SMTP_HOST="")
        for machine in (first, second):
            machine.ready()
            machine.go()
        until(lambda: keys_received)
        waiting = first_to_speak(first, second)
        working = second if waiting is first else first
        assert waiting.line().startswith("waiting for the notify of ")
        # The call is received, and its answer reaches a process that is stopped.
        working.stop()
        answer.set()
        lines = waiting.rest()
        assert lines == ["webhook: sent 1 version of 2020-W53", "webhook: sent 1 version of 2021-W01", "[]"]
        working.wake()
        assert "This run was stopped for longer than its lease notify" in working.rest()[-1]
    # The one that was under way comes twice, as the same one.
    first_key, again, other = keys_received
    assert first_key == again != other


@contextmanager
def webhook() -> Iterator[tuple[str, list[str], threading.Event]]:
    """Run a server that keeps the keys of what is posted to it, and does not answer until it is allowed to."""
    keys_received: list[str] = []
    answer = threading.Event()

    class Answering(Handler):
        def do_POST(self) -> None:
            self.body()
            keys_received.append(self.headers["Idempotency-Key"])
            answer.wait()
            self.answer(200)

    with serving(Answering) as url:
        try:
            yield url, keys_received, answer
        finally:
            answer.set()
