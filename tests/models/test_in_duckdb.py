"""The SQL of the models in DuckDB: as expected by plain Python, for later schemas, and for topics without a record.

That Spark has the same rows is tested on lakes, as are the unit tests that DuckDB does not run (tests/end_to_end).
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.types import DecimalType, DoubleType, FloatType, IcebergType, IntegerType, LongType

from python_common.config.environment import PROJECT_ROOT
from python_common.weeks import IsoWeek
from python_dbt.manifest import REFERENCED, DbtManifest
from python_dev.review.quick import Engine, Places
from python_dev.stack.sample_data import produced_log
from python_dev.stack.sample_data.expected.summary import summarise
from python_dev.stack.sample_data.plan import Plan
from python_ingest.declare.spark_types import children, with_children
from python_ingest.declare.table_layout import METADATA_COLUMNS
from python_ingest.declare.topics import read_declarations
from tests.support.lake import SIZE
from tests.support.landed import land_log, write_rows
from tests.support.main_job import assert_marts_are_as_expected, assert_sales_are_as_expected

Row = dict[str, Any]
Tables = dict[str, list[Row]]

MOMENT = datetime(2026, 11, 16, 12, tzinfo=UTC)
# More than an int, or a price of the sample data, can hold.
LARGE, PRICE = 2**33, Decimal("12345678901.23")
VALUES: dict[str, Any] = {
    **{"boolean": True, "long": LARGE, "double": LARGE + 0.25, "string": "text", "binary": b"bytes"},
    **{"date": MOMENT.date(), "timestamp": MOMENT.replace(tzinfo=None), "timestamptz": MOMENT},
}
"""A value by the name of a type."""
POSITION = {
    **{"kafka_topic": "topic", "kafka_partition": 0, "kafka_offset": 0, "kafka_timestamp": MOMENT},
    **{"kafka_raw_value": b"bytes", "ingest_batch": 1, "ingested_at": MOMENT},
}
# Kafka's keys of their records are no keys of rows.
KEYED_BY_VALUE = {"int_payments_deduplicated": "stg_payments__payments"}
KEYED_BY_VALUE |= {"int_store_orders_deduplicated": "stg_storefront__store_orders"}
KEYED = {
    "int_trades_deduplicated",
    *(f"int_{entity}_deduplicated" for entity in ("orders", "order_items")),
    *(f"int_{entity}_versions" for entity in ("addresses", "customers", "products")),
}


def widened(column: IcebergType) -> IcebergType:
    """Return the widest type that a column may get."""
    match column:
        case IntegerType():
            return LongType()
        case FloatType():
            return DoubleType()
        case DecimalType():
            return DecimalType(column.precision + 10, column.scale)
    return with_children(column, {name: widened(part) for name, part in children(column).items()})


def large(column: IcebergType) -> Any:
    """Return a value that needs a type."""
    if isinstance(column, DecimalType):
        return PRICE
    parts = {name: large(part) for name, part in children(column).items()}
    return [parts["element"]] if "element" in parts else parts or VALUES[str(column)]


def empty(value: Any, path: str) -> list[str]:
    """Return the places, at any depth, where a value is NULL."""
    match value:
        case None:
            return [path]
        case dict():
            return [at for name, part in value.items() for at in empty(part, f"{path}.{name}")]
        case list():
            return [at for part in value for at in empty(part, path)]
    return []


def is_payload(name: str) -> bool:
    return name == "kafka_key" or name not in METADATA_COLUMNS


def land(directory: Path, records: int) -> Path:
    """Land so many records of each topic: with large values, and one whose value has no field."""
    for declaration in read_declarations():
        types = children(declaration.columns)
        payload = {name: widened(column) for name, column in types.items() if is_payload(name)}
        record = {name: large(column) for name, column in payload.items()} | POSITION
        key = record["kafka_key"]
        # Another key, of a number or a text.
        other = {name: value * 2 for name, value in key.items()} if isinstance(key, dict) else key
        rows = [record, POSITION | {"kafka_key": other, "kafka_offset": 1}]
        write_rows(directory, declaration.identifier, rows[:records], {**types, **payload})
    return directory


@dataclass
class Wave:
    """The sample data after a wave, built in DuckDB, and what should be in it by plain Python."""

    manifest: DbtManifest
    number: int
    directory: Path

    def __post_init__(self) -> None:
        self.last_week = IsoWeek.last_complete(datetime.now(UTC))
        log = produced_log(**SIZE, last_week=self.last_week, wave=self.number)
        plan = Plan(**SIZE, last_week=self.last_week)
        self.expected = json.loads(json.dumps(summarise(log, plan, self.number)))
        land_log(self.directory, log)
        self.engine, self.places = Engine(self.directory), Places(self.manifest, PROJECT_ROOT)
        nodes = [node for node in self.manifest.nodes.values() if node.resource_type in REFERENCED]
        self.engine.build(self.places, [node.unique_id for node in nodes])

    def query(self, table: str, sql: str) -> list[tuple[Any, ...]]:
        """Run SQL over a table; it is `rows` in the SQL."""
        return self.engine.run(f"with rows as (select * from {self.places.tables[table]}) {sql}")


@pytest.mark.parametrize("number", [1, 2])
def test_marts_of_both_waves_are_as_expected(compiled_project: DbtManifest, tmp_path: Path, number: int) -> None:
    wave = Wave(compiled_project, number, tmp_path)
    assert_marts_are_as_expected(wave)
    assert_sales_are_as_expected(wave, number)
    answers = wave.engine.answers(wave.places, compiled_project.unit_tests.values())
    answered = {name: answer for name, answer in answers.items() if isinstance(answer, str)}
    assert {*answered.values()} == {"pass"}, answered
    assert len(answered) > 30 > len(answers) - len(answered)


def build(manifest: DbtManifest, directory: Path, names: Iterable[str]) -> Tables:
    """Return the rows of models over what was landed."""
    engine, places, nodes = Engine(directory), Places(manifest, PROJECT_ROOT), [*map(manifest.named, names)]
    engine.build(places, [node.unique_id for node in nodes])
    assert engine.errors == {}
    tables = [engine.database.table(places.tables[node.table]).to_arrow_table() for node in nodes]
    return {node.name: table.to_pylist() for node, table in zip(nodes, tables, strict=True)}


@pytest.fixture(scope="module")
def built(compiled_project: DbtManifest, tmp_path_factory: pytest.TempPathFactory) -> Tables:
    landed = land(tmp_path_factory.mktemp("landed"), records=2)
    return build(compiled_project, landed, (*KEYED, *KEYED_BY_VALUE, "ops_data_quality_issues"))


def test_a_topic_without_a_record_fails_or_makes_rows(compiled_project: DbtManifest, tmp_path: Path) -> None:
    # The calendar does not come from a topic.
    names = [node.name for node in compiled_project.models if node.schema in ("deduplicated", "joined", "marts")]
    built = build(compiled_project, land(tmp_path, records=0), {*names} - {"dim_dates"})
    assert len(built) > 20
    assert {name: len(rows) for name, rows in built.items() if rows} == {
        "dim_customers": 1,
        "dim_products": 1,
    }


def test_a_value_that_needs_the_wider_type_is_in_its_row(built: Tables) -> None:
    for name in (*KEYED, *KEYED_BY_VALUE):
        row = next(row for row in built[name] if row.get("kafka_offset") == 0 or row.get("version_key") == "0-0")
        assert [at for at in empty(row, name) if not at.endswith(".valid_to")] == []


def test_a_record_with_a_key_is_lost_or_one_without_not_counted(built: Tables) -> None:
    assert {name: len(built[name]) for name in (*KEYED, *KEYED_BY_VALUE)} == {
        **dict.fromkeys(KEYED, 2),
        **dict.fromkeys(KEYED_BY_VALUE, 1),
    }
    issues = [row for row in built["ops_data_quality_issues"] if row["issue_type"].startswith("missing: no model")]
    counted = {row["model_name"]: row["row_count"] for row in issues if row["row_count"]}
    assert counted == dict.fromkeys(KEYED_BY_VALUE.values(), 1)
