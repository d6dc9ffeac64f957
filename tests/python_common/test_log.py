"""The log on stderr: times in UTC, text or JSON, by options before and behind the sub-command; results on stdout."""

import json
import logging
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest

from python_common.errors import UserError
from python_common.log import configure, log, run_module
from python_common.output import console, print_json, print_table
from python_jobs import cli


@pytest.fixture(autouse=True)
def as_before() -> None:
    yield
    configure()


def test_a_line_has_its_time_in_utc_and_its_level(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "Asia/Kathmandu")
    configure("debug")
    log.debug("%s: %d records", "orders", 3)
    output = capsys.readouterr()
    line = re.fullmatch(r"(\S+)Z debug: orders: 3 records\n", output.err)
    assert line
    assert abs(datetime.fromisoformat(line[1]).replace(tzinfo=UTC).timestamp() - datetime.now(UTC).timestamp()) < 60
    assert output.out == ""


def test_json_is_one_object_per_line(capsys: pytest.CaptureFixture[str]) -> None:
    configure("info", "json")
    log.error("two\nlines")
    log.warning("one")
    events = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [(event["level"], event["message"]) for event in events] == [("error", "two\nlines"), ("warning", "one")]


def test_events_below_the_level_are_not_logged(capsys: pytest.CaptureFixture[str]) -> None:
    configure("warning")
    log.info("progress")
    logging.getLogger("pyiceberg").info("a manifest")
    logging.getLogger("pyiceberg").warning("a limit")
    # As Py4J does when the JVM has ended; the exception comes too, and its report names the topic.
    logging.error("Exception while sending command.")
    assert [line.partition(" ")[2] for line in capsys.readouterr().err.splitlines()] == ["warning: a limit"]


def test_no_traceback_is_logged(capsys: pytest.CaptureFixture[str]) -> None:
    configure()
    try:
        raise ValueError("4111-1111-1111-1111")
    except ValueError:
        log.exception("it failed")
    assert capsys.readouterr().err.partition(" ")[2] == "error: it failed\n"


def test_an_error_of_a_module_is_logged_and_ends_it(capsys: pytest.CaptureFixture[str]) -> None:
    def main(name: str) -> None:
        raise UserError(f"{name} is missing", "Make it")

    with pytest.raises(SystemExit, match=r"^1$"):
        run_module(main, "a lock")
    output = capsys.readouterr()
    assert (output.out, output.err.partition(" ")[2]) == ("", "error: a lock is missing. Make it.\n")


def test_the_options_are_taken_behind_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LAKEHOUSE_HOME", str(tmp_path))
    monkeypatch.delenv("KAFKA_BOOTSTRAP_SERVERS", raising=False)
    # Its thread would end the worker at a signal of another test.
    monkeypatch.setattr(cli, "end_at_sigterm", lambda: None)
    monkeypatch.setattr("sys.argv", ["lakehouse", "pii", "rotate", "--log-format=json", "--log-level", "info"])
    with pytest.raises(SystemExit, match=r"^1$"):
        cli.main()
    refused = capsys.readouterr()
    assert refused.out == ""
    event = json.loads(refused.err)
    assert event.keys() == {"time", "level", "message"}
    assert (event["level"], event["message"][:30]) == ("error", "KAFKA_BOOTSTRAP_SERVERS is not")


@dataclass(frozen=True)
class Version:
    path: str
    at: datetime


def test_tables_have_a_line_per_row_and_json_has_dataclasses(capsys: pytest.CaptureFixture[str]) -> None:
    path = "/".join(["directory"] * 30)
    headings, rows = ("path", "rows", "schema id"), [(path, 1200, 1200), ("b", 7, None)]
    print_table(headings, rows)
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split() == [path, "1,200", "1200"]
    # Numbers end where their heading does.
    assert lines[0].index("rows") + 4 == lines[2].index("7") + 1 == lines[1].index("1,200") + 5
    assert lines[2].split() == ["b", "7", "-"]
    # No name of a topic or path is markup, or an emoji.
    print_table(("record",), [("orders:100:5",)])
    console.print("[bold]orders:100:5")
    assert capsys.readouterr().out.splitlines()[1:] == ["orders:100:5", "[bold]orders:100:5"]
    print_json({"new": [Version(path, datetime(2026, 11, 9, tzinfo=UTC))]})
    assert json.loads(capsys.readouterr().out) == {"new": [{"path": path, "at": "2026-11-09 00:00:00+00:00"}]}
