"""Export tables hold one partition per week: which weeks a build replaces, and which snapshots it tags as tested."""

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from python_common.catalog.catalog import load_catalog
from python_common.config.environment import PROJECT_ROOT
from python_common.config.settings import Settings
from python_dbt.run import errors, event_of
from tests.support.commands import run_dbt
from tests.support.in_process import dbt
from tests.support.small_project import write_small_project

pytestmark = pytest.mark.slow

CONFIG = {
    "materialized": "incremental",
    "incremental_strategy": "replace_partitions",
    "partitions": "exported_weeks",
    "partition_by": "week",
    "on_schema_change": "append_new_columns",
    "meta": {"export": {"key": ["id"]}},
}
MODEL = "select * from values {values} as things (id, week) where {{{{ in_exported_weeks('week') }}}}"
PARTITION_TESTED = """
models:
  - name: exp_thing
    data_tests: [keeps_contract]
    columns:
      - {name: id, data_tests: [unique, not_null]}
      - {name: week, data_tests: [not_null], constraints: [{type: not_null}]}
"""
TESTED = "models: [{name: exp_thing, columns: [{name: id, data_tests: [unique]}]}]"

Run = Callable[..., bool]


@pytest.fixture(scope="module")
def catalog(masking_key: Settings) -> Catalog:
    return load_catalog(masking_key)


@pytest.fixture(scope="module")
def project(catalog: Catalog, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    directory = tmp_path_factory.mktemp("weeks")
    write_small_project(directory, **{"on-run-end": ["{{ tag_tested(results) }}"]})
    (directory / "tests" / "generic").mkdir(parents=True)
    shutil.copy(PROJECT_ROOT / "tests/data/generic/keeps_contract.sql", directory / "tests/generic")
    yield directory
    catalog.drop_table("small.exp_thing")


@pytest.fixture
def run(project: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Return a function that gives the model some rows, runs a dbt command, and returns whether it succeeded."""
    monkeypatch.setenv("DBT_TARGET_PATH", str(project / "target"))
    monkeypatch.setenv("DBT_LOG_PATH", str(project / "logs"))
    monkeypatch.setenv("LAKEHOUSE_GIT_COMMIT", "abc-dirty")

    def invoke(values: str, *arguments: str, command: str = "build", **config: object) -> bool:
        (project / "models" / "exp_thing.yml").write_text(TESTED)
        (project / "models" / "exp_thing.sql").write_text(
            f"{{{{ config(**{CONFIG | config}) }}}}\n" + MODEL.format(values=values)
        )
        return dbt(command, *arguments, project=project).success

    return invoke


def table_of(catalog: Catalog) -> Table:
    return catalog.load_table("small.exp_thing")


def rows_at(catalog: Catalog, week: str | None = None) -> list[tuple[int, str]]:
    """Return the rows of the table, or of the snapshot that was tested for a week."""
    table = table_of(catalog)
    snapshot_id = table.refs()[f"tested-{week}"].snapshot_id if week else None
    return sorted((row["id"], row["week"]) for row in table.scan(snapshot_id=snapshot_id).to_arrow().to_pylist())


def test_a_build_touches_other_weeks_or_tags_what_failed(catalog: Catalog, run: Run) -> None:
    values = "(1, '2026-W44'), (2, '2026-W45'), (3, '2026-W46'), (4, null)"
    assert run(values, "--vars", "weeks: 2026-W45, 2026-W46")
    both = [(2, "2026-W45"), (3, "2026-W46")]
    assert rows_at(catalog) == rows_at(catalog, "2026-W45") == rows_at(catalog, "2026-W46") == both
    table = table_of(catalog)
    summary = table.current_snapshot().summary
    assert (summary["lakehouse.git-commit"], json.loads(summary["lakehouse.sources"])) == ("abc-dirty", {})
    assert summary["lakehouse.invocation-id"]

    # An old week that lost its rows is emptied, and the others stay.
    assert run("(9, '2026-W46')", "--vars", "week: 2026-W45")
    assert rows_at(catalog) == rows_at(catalog, "2026-W45") == [(3, "2026-W46")]
    assert rows_at(catalog, "2026-W46") == both

    # A key of another week is no duplicate: that week is as it was exported.
    assert run("(3, '2026-W45')", "--vars", "week: 2026-W45")
    assert rows_at(catalog, "2026-W45") == [(3, "2026-W45"), (3, "2026-W46")]

    # What fails its tests, is not tested, or is written to by others is no tested snapshot.
    tested = {name: ref.snapshot_id for name, ref in table_of(catalog).refs().items() if name.startswith("tested-")}
    assert not run("(5, '2026-W45'), (5, '2026-W45')", "--vars", "week: 2026-W45")
    assert run("(6, '2026-W45')", "--vars", "week: 2026-W45", command="run")
    others = [
        "reset `spark.sql.iceberg.snapshot-property.lakehouse.invocation-id`",
        "insert into small.exp_thing values (7, '2026-W45')",
    ]
    assert run("(6, '2026-W45')", "--vars", "week: 2026-W45", post_hook=others)
    assert rows_at(catalog) == [(3, "2026-W46"), (6, "2026-W45"), (7, "2026-W45")]
    refs = table_of(catalog).refs()
    assert {name: refs[name].snapshot_id for name in tested} == tested


def test_the_week_stays_where_dbt_does_not_parse_again(
    catalog: Catalog, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = "(1, '2026-W48'), (2, '2026-W49')"
    started_at: list[datetime] = []
    run_started_at = property(lambda _: started_at[-1], lambda *_: None)
    monkeypatch.setattr("dbt.tracking.User.run_started_at", run_started_at, raising=False)
    for moment in (datetime(2026, 12, 1, tzinfo=UTC), datetime(2026, 12, 8, tzinfo=UTC)):
        started_at.append(moment)
        assert run(values)
    before, after = rows_at(catalog, "2026-W48"), rows_at(catalog, "2026-W49")
    week = [(2, "2026-W49")]
    # If the first moment's literals had remained, the second run would have made its week again.
    assert (1, "2026-W48") in before
    assert sorted(before + week) == after


@pytest.mark.parametrize(
    ("rows", "failed"),
    [
        # As a join gives them that should be an inner one.
        ("(1, '2026-W45'), (2, null)", {"not_null_exp_thing_week", "keeps_contract_exp_thing_"}),
        ("(3, '2026-W45'), (3, null)", {"not_null_exp_thing_week", "keeps_contract_exp_thing_", "unique_exp_thing_id"}),
        # Those of a week that the run does not name are neither written nor tested.
        ("(4, '2026-W45'), (4, '2026-W44'), (null, '2026-W46')", set()),
    ],
)
def test_tests_see_a_row_without_a_partition(
    catalog: Catalog, run: Run, project: Path, rows: str, failed: set[str]
) -> None:
    """The run after it is corrected replaces the row, too."""
    catalog.drop_table("small.exp_thing")
    assert run("(9, '2026-W44')", "--vars", "week: 2026-W44")
    (project / "models" / "exp_thing.yml").write_text(PARTITION_TESTED)
    config = f"{{{{ config(**{CONFIG}) }}}}\n"
    typed = f"select cast(id as int) as id, cast(week as string) as week from values {rows} as things (id, week)"
    (project / "models" / "exp_thing.sql").write_text(f"{config} {typed}")
    built: Any = dbt("build", "--vars", "week: 2026-W45", project=project).result
    assert {result.node.name for result in built.results if result.status == "fail"} == failed
    assert run("(5, '2026-W45')", "--vars", "week: 2026-W45")
    assert rows_at(catalog) == [(5, "2026-W45"), (9, "2026-W44")]


def test_two_builds_at_once_lose_no_row(catalog: Catalog, run: Run, project: Path) -> None:
    """A build that fails names the conflict, and succeeds when it is run again."""
    catalog.drop_table("small.exp_thing")
    values = "(1, '2026-W44'), (2, '2026-W45'), (3, '2026-W46')"
    assert run(values, "--vars", "week: 2026-W44")

    def build(week: str) -> subprocess.CompletedProcess[str]:
        target = str(project / f"target-{week}")
        arguments = ("--log-format", "json", "run", "--vars", f"week: {week}")
        return run_dbt(*arguments, directory=project, DBT_TARGET_PATH=target)

    weeks = ("2026-W45", "2026-W46")
    for _ in range(3):
        with ThreadPoolExecutor() as executor:
            finished = dict(zip(weeks, executor.map(build, weeks), strict=True))
        for week, built in finished.items():
            if built.returncode:
                why = errors(filter(None, map(event_of, built.stdout.splitlines())))
                assert [line for line in why if "run the command again" in line], built.stdout
                assert build(week).returncode == 0
        assert rows_at(catalog) == [(1, "2026-W44"), (2, "2026-W45"), (3, "2026-W46")]
