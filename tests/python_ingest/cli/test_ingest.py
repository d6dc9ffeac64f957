"""The commands as a person types them: durations, errors in one line, exit codes, Ctrl-C."""

import json
import re
import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest

from python_common.config.settings import Settings
from python_common.config.variables import seconds
from python_common.errors import UserError
from python_ingest.bronze.commit import Landed
from python_ingest.cli.ingest import _print_summary
from python_ingest.declare.topics import Declaration
from python_ingest.landing.run import Options, Reporter, TopicResult
from tests.support.commands import LAKEHOUSE, run_lakehouse
from tests.support.in_process import Lakehouse
from tests.support.topic_fixture import Messages, TopicFixture, assert_exactly_once, produce, record

BACKLOG = 3_000


@pytest.mark.parametrize(
    ("text", "expected"), [("30s", 30), ("30", 30), ("500ms", 0.5), ("5m", 300), ("1.5h", 5400), ("7d", 604800)]
)
def test_a_duration_is_read(text: str, expected: float) -> None:
    assert seconds(text) == expected


@pytest.mark.parametrize("text", ["", "soon", "5 days", "-5s"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(UserError, match="is not a duration"):
        seconds(text)


def test_the_summary_has_counts_and_rate(capsys: pytest.CaptureFixture[str]) -> None:
    _print_summary([TopicResult("orders", records=1200, dead_letters=3, batches=2, seconds=4.0, lag=0)])
    assert re.search(r"orders +1,200 +3 +2 +4\.0 +300 +0", capsys.readouterr().out)


def test_progress_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    reporter = Reporter()
    reporter.waiting("orders", 10)
    reporter.landed("orders", Landed(6, 1))
    reporter.landed("orders", Landed(4, 0))
    reporter.note("orders", "planning again")
    for left in (0, 0, 1, 0):
        reporter.waiting("orders", left)
    assert caplog.messages == [
        "orders: 6 records landed, 1 dead letters in the last batch",
        "orders: 10 records landed, 0 dead letters in the last batch",
        "orders: planning again",
        "orders: caught up",
        "orders: caught up",
    ]


def test_a_missing_topic_is_one_line(services: Settings, declaration: Declaration, ingest: Lakehouse) -> None:
    missing = ingest("run", "--json")
    assert missing.returncode == 1
    [result] = json.loads(missing.stdout)
    assert (result["topic"], result["records"]) == (declaration.topic, 0)
    assert f"error: {result['error']}\n" == missing.stderr
    assert missing.stderr.startswith(f"error: The topic '{declaration.topic}' does not exist")
    assert missing.stderr.count("\n") == 1


@pytest.mark.slow
def test_a_catalog_that_spark_cannot_open_is_one_line_with_its_cause(
    topic: TopicFixture, models_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic.produce(topic.encode(topic.register(record("sale", id="int")), {"id": 1}))
    topic.flush()
    wrong = f"{topic.settings.catalog_uri}&transaction_mode=nonsense"
    monkeypatch.setenv("LAKEHOUSE_CATALOG_URI", wrong)
    result = run_lakehouse("ingest", "run", "--models", str(models_dir))
    assert result.returncode == 1
    assert result.stderr.startswith(f"error: Spark cannot open the catalog at {wrong} (")
    assert result.stderr.count("\n") == 1, result.stderr


@pytest.mark.slow
@pytest.mark.parametrize(("options", "signals"), [([], 1), (["--follow"], 2)])
def test_a_signal_ends_a_run_at_once_and_the_next_one_lands_the_rest(
    topic: TopicFixture, models_dir: Path, options: list[str], signals: int
) -> None:
    """While it follows, the first signal lets it end the batches in hand."""
    produce(topic, BACKLOG)
    few = ["--max-records", "20"]
    command = [LAKEHOUSE, "ingest", "run", *few, *options, "--models", str(models_dir)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    assert " records landed" in process.stderr.readline()
    for _ in range(signals):
        process.send_signal(signal.SIGTERM)
        # One that comes while the other is still waiting to be seen is none.
        time.sleep(0.3)
    _, events = process.communicate(timeout=60)
    # Following may have ended well before the second one, or Python be at its end, where no handler of signals is left.
    assert process.returncode in ([130] if signals == 1 else [130, 0, -signal.SIGTERM])
    assert all(" info: " in line for line in events.splitlines()), events
    assert len(topic.rows()) < BACKLOG
    topic.land_well()
    assert_exactly_once(topic, BACKLOG)


@pytest.mark.slow
def test_a_run_that_is_interrupted_begins_no_other_batch(topic: TopicFixture) -> None:
    """As a weekly job's, whose process goes on to its end."""
    produce(topic, BACKLOG)

    class Interrupted(Messages):
        batches = 0

        def landed(self, topic: str, what: Landed) -> None:
            self.batches += 1
            if self.batches == 1:
                signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    messages = Interrupted()
    with pytest.raises(KeyboardInterrupt):
        topic.ingester(Options(20, wait=10), messages=messages).catch_up([topic.declaration])
    # The time of ten batches.
    time.sleep(5)
    assert messages.batches <= 2
    topic.land_well()
    assert_exactly_once(topic, BACKLOG)


def test_too_many_dead_letters_have_a_separate_exit_code(topic: TopicFixture, ingest: Lakehouse) -> None:
    good = topic.encode(topic.register(record("sale", id="int")), {"id": 1})
    for _ in range(21):
        topic.produce(b"poison")
    topic.produce(good)
    topic.flush()
    result = ingest("run")
    assert result.returncode == 4
    *progress, warning = result.stderr.splitlines()
    assert warning == (
        f"warning: {topic.name}: 21 of 22 records landed are dead letters, more than max_dead_letters allows."
        f" `lakehouse ingest dead-letters {topic.name}` lists why."
    )
    assert f"info: {topic.name}: caught up" in progress
    for value in (b"poison", good):
        topic.produce(value)
    result = topic.land_well()
    assert (result.records, result.dead_letters, result.over_limit) == (2, 1, False)


def test_a_note_on_a_schema_is_a_warning_of_its_run_and_in_the_status(topic: TopicFixture, ingest: Lakehouse) -> None:
    schema_id = topic.register(record(f"sale_{topic.declaration.table}", id="int", ID="int", k="int"))
    topic.produce(topic.encode(schema_id, {"id": 1, "ID": 2, "k": 3}))
    topic.flush()
    run = ingest("run")
    assert run.returncode == 0
    omitted = "is omitted, its name differs from another new one by case only: NULL in the table"
    note = f"schema id {schema_id}: id {omitted}; ID {omitted}"
    assert f"warning: {topic.name}: {note}\n" in run.stderr
    assert topic.table().properties[f"lakehouse.note.value-schema.{schema_id}"] == note
    assert f"note: {topic.name}: {note}" in " ".join(ingest("status").stdout.split())
    assert topic.land_well().notes == []
