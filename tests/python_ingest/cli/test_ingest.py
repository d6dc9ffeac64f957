"""The commands as a person types them: durations, errors in one line, exit codes, Ctrl-C."""

import json
import re
from pathlib import Path

import pytest

from python_common.config.settings import Settings
from python_common.config.variables import seconds
from python_common.errors import UserError
from python_ingest.bronze.commit import Landed
from python_ingest.cli.ingest import _print_summary
from python_ingest.declare.topics import Declaration
from python_ingest.landing.run import Reporter, TopicResult
from python_ingest.maintenance.status import topic_statuses
from tests.support.in_process import Lakehouse
from tests.support.topic_fixture import TopicFixture, record


def test_durations_are_read_and_other_texts_refused() -> None:
    texts = {"30s": 30, "30": 30, "500ms": 0.5, "5m": 300, "1.5h": 5400, "7d": 604800}
    assert {text: seconds(text) for text in texts} == texts
    for text in ("", "soon", "5 days", "-5s"):
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
    verified = ingest("verify")
    assert (verified.returncode, verified.stderr) == (1, "")
    assert verified.stdout.startswith(f"{declaration.topic}: not verified: The topic '{declaration.topic}' does not")


def test_too_many_dead_letters_have_a_separate_exit_code(
    topic: TopicFixture, models_dir: Path, ingest: Lakehouse
) -> None:
    good = topic.encode(topic.register(record("sale", id="int")), {"id": 1})
    for _ in range(21):
        topic.produce(b"poison")
    topic.produce(good)
    topic.flush()
    metrics = models_dir / "run.prom"
    result = ingest("run", "--metrics-file", str(metrics))
    assert result.returncode == 4
    *progress, warning = result.stderr.splitlines()
    assert warning == (
        f"warning: {topic.name}: 21 of 22 records landed are dead letters, more than max_dead_letters allows."
        f" `lakehouse ingest dead-letters {topic.name}` lists why."
    )
    assert f"info: {topic.name}: caught up" in progress
    assert f'lakehouse_ingest_over_limit{{topic="{topic.name}"}} 1.0' in metrics.read_text()
    (status,) = topic_statuses(topic.settings, [topic.declaration], 10)
    assert (status.recent_dead_letters, status.over_limit, status.row()["too many"]) == (21, True, "yes")
    for value in (b"poison", good):
        topic.produce(value)
    result = topic.land_well()
    assert (result.records, result.dead_letters, result.over_limit) == (2, 1, False)


def test_a_note_on_a_schema_is_not_in_run_and_status(topic: TopicFixture, ingest: Lakehouse) -> None:
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
