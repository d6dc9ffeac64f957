"""A bad masking key or lease stops dbt before anything is written, with a line that has the remedy."""

from collections.abc import Callable
from pathlib import Path

import pytest
from pyhive import hive

from python_common import pii_key
from python_common.catalog.catalog import load_catalog
from python_common.config.settings import Settings
from python_common.locks.lease import held_number, leased
from python_common.spark.thrift import rows
from tests.support.in_process import Dbt

Run = Callable[..., str]


@pytest.fixture
def refused(
    masking_key: Settings, project_dbt: Dbt, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Run:
    """Return a function that runs a dbt command with variables, and gives its output if dbt fails, else ''."""

    def run(*arguments: str, **variables: str) -> str:
        with monkeypatch.context() as patched:
            for name, value in variables.items():
                patched.setenv(name, value)
            capfd.readouterr()
            return "" if project_dbt(*arguments).success else capfd.readouterr().out

    return run


def snapshot(cursor: hive.Cursor) -> list[tuple]:
    return rows(cursor, "select snapshot_id from reference.channels.refs")


BUILD = ("build", "--select", "channels")
# What runs before each build, alone.
CHECK = ("run-operation", "check_pii_key")


@pytest.mark.parametrize(
    ("command", "damage", "message"),
    [
        (BUILD, lambda file, key: None, "is missing or does not hold exactly one key"),
        (CHECK, lambda file, key: file.write_text(key * 2), "is missing or does not hold exactly one key"),
        (CHECK, lambda file, key: file.write_text(key), "has no copy"),
        (
            CHECK,
            lambda file, key: file.write_text(key.replace(":source", "")),
            "is of a release that gave equal numbers of two systems one pseudonym",
        ),
        (BUILD, lambda file, key: pii_key.create(file), "holds another key than the one this warehouse is masked with"),
    ],
    ids=["missing", "two keys", "without its copy", "an earlier release's key", "another key"],
)
def test_a_bad_masking_key_stops_before_any_write(
    masking_key: Settings,
    cursor: hive.Cursor,
    refused: Run,
    tmp_path: Path,
    command: tuple[str, ...],
    damage: Callable[[Path, str], object],
    message: str,
) -> None:
    before = snapshot(cursor)
    key = masking_key.pii_key_file.read_text()
    key_file = tmp_path / "pii.key"
    damage(key_file, key)
    reason = refused(*command, LAKEHOUSE_PII_KEY_FILE=str(key_file))
    assert f"The masking key file {key_file} {message}" in reason
    assert key[4:40] not in reason
    assert snapshot(cursor) == before
    # What the masked views read: never a key that was refused.
    [[pads]] = rows(cursor, "select value from spark_catalog.default.pii_pads")
    assert pads == key.strip()


def test_a_key_file_that_is_not_named_is_asked_for(refused: Run) -> None:
    assert "The masking key is missing: LAKEHOUSE_PII_KEY_FILE is not set" in refused(*CHECK, LAKEHOUSE_PII_KEY_FILE="")


def test_nothing_is_built_while_another_run_has_the_lease(
    masking_key: Settings, cursor: hive.Cursor, refused: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = load_catalog(masking_key)
    monkeypatch.setattr("socket.gethostname", lambda: "elsewhere")
    with leased(catalog, "weekly", "weekly 2020-W53") as theirs:
        before = snapshot(cursor)
        reason = refused(*BUILD)
        assert f"The lake is at work for elsewhere:{masking_key.home} (weekly 2020-W53, since 20" in reason
        assert snapshot(cursor) == before
        # What the holder itself starts gets its number; what outlives the lease has another one.
        assert refused(*BUILD, LAKEHOUSE_LEASE=held_number("weekly")) == ""
        outlived = refused("run-operation", "require_lease", LAKEHOUSE_LEASE=str(theirs.number - 1))
        assert "The lake is at work for elsewhere:" in outlived
    assert refused("run-operation", "require_lease") == ""


@pytest.mark.parametrize("limited", [["--empty"], ["--sample", "3 days"]])
def test_a_run_on_a_part_of_its_input_is_refused(cursor: hive.Cursor, refused: Run, limited: list[str]) -> None:
    before = snapshot(cursor)
    reason = refused(*BUILD, *limited)
    assert "--empty and --sample are not supported: models keep what they have read" in reason
    assert snapshot(cursor) == before
