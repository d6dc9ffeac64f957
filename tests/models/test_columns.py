"""Tables follow the columns of their models over random releases, failures and rollbacks (incremental/columns.sql)."""

import json
import random
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from pyhive import hive

from python_common.spark.thrift import rows
from tests.support.in_process import dbt
from tests.support.small_project import write_small_project

pytestmark = pytest.mark.slow

WEEKS = ("2026-W44", "2026-W45", "2026-W46")
NAMES = ("brand", "price", "city", "color", "size")
TYPES = ("int", "string", "decimal(12,2)")
POLICIES = {"export": "append_new_columns", "fact": "fail", "lasting": "append_new_columns", "history": ""}
CHANGES = ("add", "add", "drop", "rename", "reorder", "retype", "revert", "nothing")
BROKEN = "and coalesce(cast(raise_error('planned') as boolean), true)"
HISTORY = {
    "schema": "small",
    "file_format": "iceberg",
    "strategy": "check",
    "check_cols": "all",
    "unique_key": "week",
    "hard_deletes": "new_record",
}

Columns = dict[str, str]
Row = dict[str, Any]


@dataclass
class Table:
    """A model whose values are the number of the run that wrote them, and what its table holds according to Python."""

    name: str
    shape: str
    is_contract: bool
    columns: Columns = field(default_factory=lambda: {"brand": "int", "week": "string", "price": "string"})
    is_broken: bool = False
    stored: Columns = field(default_factory=dict)
    rows: dict[Any, Row] = field(default_factory=dict)
    releases: list[Columns] = field(default_factory=list)

    def release(self, chance: random.Random) -> None:
        """Change the columns of the model, or roll it back; now and then its SQL fails on the data."""
        self.releases.append(self.columns)
        kind, columns = chance.choice(CHANGES), list(self.columns.items())
        unused = [name for name in NAMES if name not in self.columns]
        position = chance.choice([number for number, (name, _) in enumerate(columns) if name != "week"])
        name, former = columns[position]
        if kind == "add" and unused:
            columns.insert(chance.randrange(len(columns) + 1), (chance.choice(unused), chance.choice(TYPES)))
        elif kind == "drop" and len(columns) > 2:
            del columns[position]
        elif kind == "rename" and unused:
            columns[position] = (chance.choice(unused), former)
        elif kind == "reorder":
            chance.shuffle(columns)
        elif kind == "retype":
            columns[position] = (name, chance.choice([other for other in TYPES if other != former]))
        elif kind == "revert":
            columns = list(chance.choice(self.releases).items())
        self.columns, self.is_broken = dict(columns), chance.random() < 0.2

    def write(self, models: Path, run: int, chance: random.Random) -> None:
        """Write the model's SQL and yml; a contract has the columns in another order than the SQL."""
        names = chance.sample(list(self.columns), len(self.columns)) if self.is_contract else list(self.columns)
        selected = ", ".join(
            "week" if name == "week" else f"cast({run} as {self.columns[name]}) as {name}" for name in names
        )
        config: dict[str, Any] = {"on_schema_change": POLICIES[self.shape], "materialized": "incremental"}
        keys, condition = [f"run {run}"], "true"
        if self.shape == "export":
            config |= {
                "incremental_strategy": "replace_partitions",
                "partitions": "exported_weeks",
                "partition_by": "week",
            }
            keys, condition = list(WEEKS), "{{ in_exported_weeks('week') }}"
        elif self.shape == "history":
            config = {"materialized": "view"}
            keys = ["always", "sometimes"][: 1 + run % 2]
            (models.parent / "snapshots" / f"{self.name}.yml").write_text(
                yaml.safe_dump(
                    {"snapshots": [{"name": self.name, "relation": f"ref('{self.name}_now')", "config": HISTORY}]}
                )
            )
        else:
            config |= {"incremental_strategy": "earliest", "unique_key": "week", "order_by": ["week"]}
            config |= {"full_refresh": False} if self.shape == "lasting" else {}
        model = f"{self.name}_now" if self.shape == "history" else self.name
        values = ", ".join(f"('{key}')" for key in keys)
        (models / f"{model}.sql").write_text(
            f"{{{{ config(**{config}) }}}}\nselect {selected} from values {values} as keys (week)"
            f" where {condition} {BROKEN if self.is_broken else ''}"
        )
        described = [{"name": name, "data_type": kind} for name, kind in self.columns.items()]
        contract = {"contract": {"enforced": self.is_contract and self.shape != "history"}}
        (models / f"{model}.yml").write_text(
            yaml.safe_dump({"models": [{"name": model, "config": contract, "columns": described}]})
        )

    def outcome(self, run: int, week: str, refreshes: bool = False) -> str:
        """Do in Python what a run should do, and return what its message should have, '' if it should succeed."""
        other = {name for name, kind in self.stored.items() if self.columns.get(name, kind) != kind}
        if self.shape == "fact":
            other |= self.stored.keys() ^ self.columns.keys()
        if self.stored and other and not refreshes:
            return "was built with other columns"
        keeps = self.shape in ("lasting", "history")
        if self.stored or not self.is_broken:
            kept = {name: kind for name, kind in self.stored.items() if keeps and name not in self.columns}
            self.stored = self.columns | kept
            for row in self.rows.values():
                for name in row.keys() - self.stored.keys() - {"deleted"}:
                    del row[name]
        if self.is_broken:
            return "planned"
        values = dict.fromkeys(self.columns, run)
        if self.shape == "history":
            self.keep_versions(run, values)
        elif self.shape == "export":
            for label in {*self.rows, week} if refreshes else {week}:
                self.rows[label] = values | {"week": label}
        else:
            self.rows = {} if refreshes else self.rows
            self.rows[run] = values | {"week": f"run {run}"}
        return ""

    def keep_versions(self, run: int, values: Row) -> None:
        """Add the versions that a snapshot adds: all values are new, and every second run one row is missing."""
        self.rows["always", run] = values | {"week": "always", "deleted": "False"}
        last = next((row for key, row in reversed(self.rows.items()) if key[0] == "sometimes"), None)
        if run % 2:
            self.rows["sometimes", run] = values | {"week": "sometimes", "deleted": "False"}
        elif last and last["deleted"] == "False":
            held = {name: last[name] for name in self.columns if name in last}
            self.rows["sometimes", run] = held | {"deleted": "True"}


def in_order(contents: Iterable[Row]) -> list[tuple[tuple[str, Any], ...]]:
    return sorted(tuple(sorted(row.items())) for row in contents)


def read(cursor: hive.Cursor, tables: list[Table]) -> dict[str, tuple[list[str], list[Row]]]:
    """Return the columns of each table in their order, and its rows without what is NULL."""
    columns, queries = {}, []
    for table in tables:
        # A partition column is there a second time.
        described = dict.fromkeys(row[0] for row in rows(cursor, f"describe small.{table.name}"))
        columns[table.name] = [name for name in described if name in table.stored]
        cells = ", ".join(columns[table.name] + ["dbt_is_deleted as deleted"] * (table.shape == "history"))
        queries.append(f"select '{table.name}', to_json(struct({cells})) from small.{table.name}")
    found = defaultdict(list)
    for name, text in rows(cursor, " union all ".join(queries)):
        row = json.loads(text)
        found[name].append({key: row[key] if key in ("week", "deleted") else int(float(row[key])) for key in row})
    return {name: (columns[name], found[name]) for name in columns}


def run_all(directory: Path, tables: list[Table], week: str, *arguments: str) -> dict[str, str]:
    """Build all models at once, and return the message of each that failed."""
    built: Any = dbt("build", "--vars", f"week: {week}", *arguments, project=directory).result
    results = built.results
    messages = {result.node.name: result.message for result in results if result.status == "error"}
    assert {result.node.name for result in results} >= {table.name for table in tables}
    return messages


@pytest.fixture
def project(tmp_path: Path, no_leftovers: None, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_small_project(tmp_path)
    (tmp_path / "snapshots").mkdir()
    monkeypatch.setenv("DBT_TARGET_PATH", str(tmp_path / "target"))
    monkeypatch.setenv("DBT_LOG_PATH", str(tmp_path / "logs"))
    return tmp_path


# With this seed each kind of model meets each change of columns, also in a run that fails.
SEED, RELEASES, OF_SHAPE = 46_072, 5, 2


def test_tables_follow_any_releases_and_rollbacks(cursor: hive.Cursor, project: Path) -> None:
    chance = random.Random(SEED)
    tables = [
        Table(f"{shape}_{number}", shape, is_contract=(number + place) % 2 == 0)
        for place, shape in enumerate(POLICIES)
        for number in range(OF_SHAPE)
    ]

    def check(run: int, week: str, *arguments: str) -> dict[str, str]:
        checked = [table for table in tables if not arguments or table.shape in ("export", "fact")]
        for table in checked:
            table.write(project / "models", run, chance)
        messages = run_all(project, checked, week, *arguments)
        expected = {table.name: table.outcome(run, week, refreshes=bool(arguments)) for table in checked}
        for table in checked:
            reason, message = expected[table.name], messages.get(table.name, "")
            # A snapshot may evaluate its SQL before its columns are compared: either refuses it.
            others = ("planned",) if table.is_broken and reason else ()
            assert bool(message) == bool(reason), message
            assert any(text in message for text in (reason, *others)), message
        contents = read(cursor, [table for table in tables if table.stored])
        for table in (table for table in tables if table.stored):
            columns, found = contents[table.name]
            if table.shape != "history":
                assert columns == list(table.stored), table
            assert in_order(found) == in_order(table.rows.values()), table
        return messages

    for run in range(1, RELEASES + 1):
        check(run, chance.choice(WEEKS))
        for table in tables:
            table.release(chance)
    for table in tables:
        table.is_broken = False
    week = chance.choice(WEEKS)
    refused = check(RELEASES + 1, week)
    before = read(cursor, tables)
    check(RELEASES + 1, week, "--full-refresh", "--select", "export_*", "fact_*")
    after = read(cursor, tables)
    for table in tables:
        if table.shape == "export" and table.name not in refused:
            of_week = [
                [row for row in found if row["week"] == week] for _, found in (before[table.name], after[table.name])
            ]
            assert (before[table.name][0], of_week[0]) == (after[table.name][0], of_week[1])


def test_a_missing_partition_column_alters_nothing(cursor: hive.Cursor, project: Path) -> None:
    table = Table("export_0", "export", is_contract=False)
    table.write(project / "models", 1, random.Random(1))
    assert run_all(project, [table], WEEKS[0]) == {}
    table.stored = dict(table.columns)
    before = read(cursor, [table])
    table.columns = {"price": "string"}
    table.write(project / "models", 2, random.Random(1))
    assert "was built with other columns: brand" in run_all(project, [table], WEEKS[0])["export_0"]
    assert read(cursor, [table]) == before
