"""The bronze table: its columns, its properties, how it is made and how it grows.

docs/exactly-once.md says why the layout is as it is: a file never mixes Kafka partitions, and the
statistics of partition, offset and batch are always kept, because the positions are read from them.
"""

from dataclasses import replace
from uuid import uuid4

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException, TableAlreadyExistsError
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema, assign_fresh_schema_ids
from pyiceberg.table import Table
from pyiceberg.transforms import DayTransform, IdentityTransform
from pyiceberg.types import (
    BinaryType,
    NestedField,
    StringType,
)

from lakehouse import property_keys
from lakehouse.catalog import load_table, location
from lakehouse.errors import UserError
from python_ingest import spark_types
from python_ingest.schema.avro import IncompatibleSchema
from python_ingest.schema.column_types import joined_columns
from python_ingest.schema.columns import METADATA_COLUMNS, declared_columns
from python_ingest.schema.state import SchemaState
from python_ingest.topics import Declaration

METRICS = {
    "default": "counts",
    "column.kafka_partition": "full",
    "column.kafka_offset": "full",
    "column.kafka_timestamp": "full",
    "column.ingest_batch": "full",
    "column.ingested_at": "full",
    "column.kafka_raw_key": "none",
    "column.kafka_raw_value": "none",
}
LAYOUT = {
    "format-version": "2",
    "write.distribution-mode": "none",
    "write.spark.fanout.enabled": "true",
    # Spark writes a table that does not say so, as one made by PyIceberg, with gzip: twice the CPU time of a batch.
    "write.parquet.compression-codec": "zstd",
    "write.parquet.compression-level": "1",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "100",
    # A commit opens every manifest, to see what lies in its ranges: there must not be many.
    "commit.manifest.min-count-to-merge": "25",
    **{f"write.metadata.metrics.{name}": mode for name, mode in METRICS.items()},
}
ATTEMPTS = 5


def load(catalog: Catalog, declaration: Declaration) -> Table | None:
    """Return the bronze table, or None if it does not exist yet.

    Raises:
        UserError: its metadata is missing or damaged.
    """
    return load_table(catalog, declaration.identifier)


def existing(catalog: Catalog, declaration: Declaration) -> Table:
    """Return the bronze table.

    Raises:
        UserError: there is none.
    """
    table = load(catalog, declaration)
    if table is None:
        raise UserError(f"There is no table {declaration.identifier}", "Run `lakehouse ingest run` first")
    return table


def prepared(catalog: Catalog, declaration: Declaration) -> Table:
    """Return the bronze table with the columns and properties that its source declares: made, or grown.

    Raises:
        UserError: a column of the table cannot be what its source declares, or others change the table all the time.
    """
    for _ in range(ATTEMPTS):
        table = load(catalog, declaration)
        table = create(catalog, declaration) if table is None else _grown(table, declaration)
        if table is not None:
            return table
    raise UserError(
        f"{declaration.identifier} was changed by others {ATTEMPTS} times in a row", "Run the command again"
    )


def _grown(table: Table, declaration: Declaration) -> Table | None:
    made_for = tuple(map(table.properties.get, (property_keys.TOPIC, property_keys.KEY_FORMAT)))
    if made_for != (declaration.topic, declaration.key):
        return table  # identity.check refuses it
    state = SchemaState.of(table)
    try:
        wanted = joined_columns(state.columns, declared_columns(declaration))
    except IncompatibleSchema as error:
        raise UserError(
            f"{declaration.identifier} cannot have a column that its source declares: {error}",
            "Correct its data_type in the dbt source, or land the topic in a new table (declare another name)",
        ) from None
    # Of the ingester's own columns a table may lack those that came with a later version of it.
    own = METADATA_COLUMNS.keys() - {"kafka_key"}
    has_columns = wanted == state.columns and own <= set(table.schema().column_names)
    if has_columns and set(declaration.table_properties) <= table.properties.items():
        return table
    return evolve(table, declaration, replace(state, columns=wanted))


def create(catalog: Catalog, declaration: Declaration) -> Table | None:
    """Create the table with the columns that its source declares; return None if another ingester was faster."""
    schema = table_schema(SchemaState(columns=declared_columns(declaration)), declaration.key)
    day = schema.find_field("ingested_at").field_id
    partition = schema.find_field("kafka_partition").field_id
    spec = PartitionSpec(
        PartitionField(day, 1000, DayTransform(), "ingested_at_day"),
        PartitionField(partition, 1001, IdentityTransform(), "kafka_partition"),
    )
    try:
        return catalog.create_table(
            declaration.identifier,
            schema,
            location=location(catalog, declaration.schema, declaration.table),
            partition_spec=spec,
            properties={
                **LAYOUT,
                **dict(declaration.table_properties),
                property_keys.TOPIC: declaration.topic,
                property_keys.KEY_FORMAT: declaration.key,
                # Models read a table with another id from its first batch, see macros/incremental/watermark.sql.
                property_keys.TABLE_ID: str(uuid4()),
            },
        )
    except TableAlreadyExistsError:
        return None


def evolve(table: Table, declaration: Declaration, state: SchemaState) -> Table | None:
    """Add and widen columns for a new state, in one commit.

    Returns:
        None if another process changed the table meanwhile: load it and merge again.
    """
    try:
        with table.transaction() as transaction:
            with transaction.update_schema() as update:
                update.union_by_name(table_schema(state, declaration.key))
            transaction.set_properties({**state.properties(), **dict(declaration.table_properties)})
    except CommitFailedException:
        return None
    return table


def table_schema(state: SchemaState, key_format: str) -> Schema:
    """Return the table's columns: the payload's, then the metadata's."""
    held = spark_types.parts(state.held())
    key = {"bytes": BinaryType(), "string": StringType()}.get(key_format, held.pop("kafka_key", None))
    columns = held | METADATA_COLUMNS | {"kafka_key": key}
    if key is None:
        # Until the schema of a key is known there is no type that would fit all that may come.
        del columns["kafka_key"]
    fields = [
        NestedField(index, name, column, required=False)
        for index, (name, column) in enumerate(columns.items(), start=1)
    ]
    return assign_fresh_schema_ids(Schema(*fields))
