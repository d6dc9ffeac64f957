"""Bronze tables with the ingester's columns but without Kafka, for tests and benchmarks that put rows into them."""

import json
from collections import defaultdict
from datetime import UTC, datetime, timedelta

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from python_common.catalog.catalog import make_namespace
from python_dev.stack.sample_data.codec import schema_text
from python_ingest.bronze import tables
from python_ingest.bronze.schema_state import SchemaState
from python_ingest.declare.topics import read_declarations
from tests.support.shuffled_events import Event

VALUES = {
    "payments": "payments-v3",
    "pizza_orders": "pizza-orders-v2",
    "stock_trades": "stock_trades-v1",
    "shiftleft_public_addresses": "addresses-v1",
    "shiftleft_public_customers": "customers-v1",
    "shiftleft_public_order_items": "order_items-v1",
    "shiftleft_public_orders": "orders-v1",
    "shiftleft_public_products": "products-v1",
}
"""The sample data's newest schema of each bronze table's values; those of Avro keys are next to it."""


def create(catalog: Catalog) -> dict[str, Table]:
    """Make every bronze table, empty, in the place of one that is there; return them by name."""
    make_namespace(catalog, "bronze")
    created = {}
    for declaration in read_declarations():
        value = VALUES[declaration.table]
        state = SchemaState().with_writer("value", 1, json.loads(schema_text(value)))
        if declaration.key == "avro":
            state = state.with_writer("key", 1, json.loads(schema_text(value.replace("-v", "-key-v"))))
        if catalog.table_exists(declaration.identifier):
            catalog.drop_table(declaration.identifier)
        # Without partitions: PyIceberg can then append rows too.
        schema = tables.table_schema(state, declaration.key)
        created[declaration.table] = catalog.create_table(declaration.identifier, schema, properties=tables.LAYOUT)
    return created


def land(tables: dict[str, Table], batch: int, wave: list[Event]) -> None:
    """Append a wave as one batch of each topic."""
    rows = defaultdict(list)
    ingested_at = datetime(2026, 11, 9, tzinfo=UTC) + timedelta(days=batch)
    for event in wave:
        rows[event.table].append(event.row | {"ingest_batch": batch, "ingested_at": ingested_at})
    for name, landed in rows.items():
        tables[name].append(pa.Table.from_pylist(landed, schema=tables[name].schema().as_arrow()))
