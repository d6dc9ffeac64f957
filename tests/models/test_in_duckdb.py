"""The SQL of the models in DuckDB: values of wider types, NULL in every field, and topics without a record."""

from collections.abc import Iterable
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.types import DecimalType, DoubleType, FloatType, IcebergType, IntegerType, LongType

from python_common.config.environment import PROJECT_ROOT
from python_dbt.manifest import DbtManifest
from python_dev.review.quick import Engine, Places
from python_ingest.declare.spark_types import children, struct, with_children
from python_ingest.declare.table_layout import METADATA_COLUMNS
from python_ingest.declare.topics import read_declarations

Tables = dict[str, list[dict[str, Any]]]

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


def land(directory: Path, records: int) -> Path:
    """Land so many records of each topic: with large values, and one whose value has no field."""
    for declaration in read_declarations():
        types = children(declaration.columns)
        payload = {name: widened(types[name]) for name in types if name == "kafka_key" or name not in METADATA_COLUMNS}
        record = {name: large(column) for name, column in payload.items()} | POSITION
        key = record["kafka_key"]
        # Another key, of a number or a text.
        other = {name: value * 2 for name, value in key.items()} if isinstance(key, dict) else key
        rows = [record, POSITION | {"kafka_key": other, "kafka_offset": 1}][:records]
        landed = pa.Table.from_pylist(rows, pa.schema(schema_to_pyarrow(struct({**types, **payload}))))
        pq.write_table(landed, directory / f"{declaration.identifier}.parquet")
    return directory


def build(manifest: DbtManifest, directory: Path, names: Iterable[str]) -> Tables:
    """Return the rows of models over what was landed."""
    engine, places, nodes = Engine(directory), Places(manifest, PROJECT_ROOT), [*map(manifest.named, names)]
    engine.build(places, [node.unique_id for node in nodes])
    assert engine.reasons == {}
    tables = [engine.database.table(places.tables()[node.table]).to_arrow_table() for node in nodes]
    return {node.name: table.to_pylist() for node, table in zip(nodes, tables, strict=True)}


@pytest.fixture(scope="module")
def built(compiled_project: DbtManifest, tmp_path_factory: pytest.TempPathFactory) -> Tables:
    landed = land(tmp_path_factory.mktemp("landed"), records=2)
    return build(compiled_project, landed, (*KEYED, *KEYED_BY_VALUE, "ops_data_quality_issues"))


def test_topics_without_a_record_are_tables_without_a_row_but_for_unknown_members(
    compiled_project: DbtManifest, tmp_path: Path
) -> None:
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


def test_a_record_stays_unless_it_has_no_key_and_those_are_counted(built: Tables) -> None:
    assert {name: len(built[name]) for name in (*KEYED, *KEYED_BY_VALUE)} == {
        **dict.fromkeys(KEYED, 2),
        **dict.fromkeys(KEYED_BY_VALUE, 1),
    }
    issues = [row for row in built["ops_data_quality_issues"] if row["issue_type"].startswith("missing: no model")]
    counted = {row["model_name"]: row["row_count"] for row in issues if row["row_count"]}
    assert counted == dict.fromkeys(KEYED_BY_VALUE.values(), 1)
