"""The bronze table: its columns, its properties, how it is made and how it grows.

docs/exactly-once.md explains the layout: a file never mixes Kafka partitions, and the
statistics of partition, offset and batch are always written, because positions are read from them where the last
batch has none.
"""

from dataclasses import replace
from uuid import uuid4

from pyiceberg.catalog import Catalog
from pyiceberg.schema import Schema, assign_fresh_schema_ids
from pyiceberg.table import Table, Transaction
from pyiceberg.table.sorting import SortDirection
from pyiceberg.types import BinaryType, StringType

from python_common.catalog import property_keys
from python_common.catalog.catalog import load_table, location, make_namespace
from python_common.catalog.commits import translate_commit_errors, until_committed
from python_common.errors import UserError
from python_common.log import log
from python_ingest.avro.walk import IncompatibleSchema
from python_ingest.bronze.column_types import decoded_columns, widened_columns
from python_ingest.bronze.schema_state import SchemaState
from python_ingest.declare import spark_types, table_layout
from python_ingest.declare.table_layout import METADATA_COLUMNS
from python_ingest.declare.topics import Declaration

METRICS = {
    "default": "counts",
    "column.kafka_generation": "full",
    "column.kafka_partition": "full",
    "column.kafka_offset": "full",
    "column.kafka_timestamp": "full",
    "column.ingest_batch": "full",
    "column.ingested_at": "full",
    "column.kafka_raw_key": "none",
    "column.kafka_raw_value": "none",
}
# Their values differ: the writer would begin a dictionary, and drop it after 20,000 rows. Keys often repeat.
WITHOUT_DICTIONARY = ("kafka_offset", "kafka_raw_value")
LAYOUT = {
    "format-version": "2",
    "write.distribution-mode": "none",
    "write.spark.fanout.enabled": "true",
    # The default is gzip for tables that PyIceberg creates: twice the CPU time of a batch.
    "write.parquet.compression-codec": "zstd",
    "write.parquet.compression-level": "1",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "100",
    # A commit opens every manifest, to see what lies in its ranges: there must not be many.
    "commit.manifest.min-count-to-merge": "25",
    **{f"write.metadata.metrics.{name}": mode for name, mode in METRICS.items()},
    **{f"write.parquet.dict-encoding-enabled.column.{name}": "false" for name in WITHOUT_DICTIONARY},
}
# A task holds a record twice, as bytes and as columns, until a row group is written. By default the writer first looks
# at its size after 100 records: 2 GB of records of 10 MB. Tables of earlier versions get it, too.
ROW_GROUPS = {"write.parquet.row-group-check-min-record-count": "4"}
NAMELESS_PARTITIONS = {"write.object-storage.enabled": "true", "write.object-storage.partitioned-paths": "false"}


def existing(catalog: Catalog, declaration: Declaration) -> Table:
    """Return the bronze table.

    Raises:
        UserError: it does not exist.
    """
    table = load_table(catalog, declaration.identifier)
    if table is None:
        raise UserError(f"There is no table {declaration.identifier}", "Run `lakehouse ingest run` first")
    return table


def prepared(catalog: Catalog, declaration: Declaration) -> Table:
    """Return the bronze table with the columns, properties and layout that its source declares: made, or changed.

    Raises:
        UserError: a column of the table cannot be what its source declares, or others change the table all the time.
    """

    def made_or_grown() -> Table:
        table = load_table(catalog, declaration.identifier)
        return create(catalog, declaration) if table is None else _grown(table, declaration)

    return until_committed(made_or_grown, f"{declaration.identifier} was changed by others", "Run the command again")


def _grown(table: Table, declaration: Declaration) -> Table:
    made_for = tuple(map(table.properties.get, (property_keys.TOPIC, property_keys.KEY_FORMAT)))
    if made_for != (declaration.topic, declaration.key):
        return table  # topic_identity.check refuses it
    state = SchemaState.of(table)
    try:
        wanted = widened_columns(state.columns, decoded_columns(declaration.columns, declaration.key))
    except IncompatibleSchema as error:
        raise UserError(
            f"{declaration.identifier} cannot have a column that its source declares: {error}",
            "Correct its data_type in the dbt source, or land the topic in a new table (declare another name)",
        ) from None
    # A table may lack metadata columns that came with a later version of the ingester.
    metadata_names = METADATA_COLUMNS.keys() - {"kafka_key"}
    has_columns = wanted == state.columns and metadata_names <= set(table.schema().column_names)
    other = other_layout(table, declaration)
    if has_columns and not other and _declared_properties(declaration).items() <= table.properties.items():
        return table
    grown = evolve(table, declaration, replace(state, columns=wanted))
    if other:
        log.info("%s: new files use %s; files that exist keep theirs", declaration.identifier, other)
    return grown


def create(catalog: Catalog, declaration: Declaration) -> Table:
    """Create the table with the columns that its source declares.

    Raises:
        CommitConflict: another ingester was faster.
    """
    columns = decoded_columns(declaration.columns, declaration.key)
    schema = table_schema(SchemaState(columns=columns), declaration.key)
    make_namespace(catalog, declaration.schema)
    with translate_commit_errors():
        return catalog.create_table(
            declaration.identifier,
            schema,
            location=location(catalog, declaration.schema, declaration.table),
            partition_spec=table_layout.partition_spec(declaration.partition_spec, schema),
            sort_order=table_layout.sort_order(declaration.sort_order, schema),
            properties={
                **LAYOUT,
                **_declared_properties(declaration),
                property_keys.TOPIC: declaration.topic,
                property_keys.KEY_FORMAT: declaration.key,
                # Models read a table with another id from its first batch, see macros/incremental/watermark.sql.
                property_keys.TABLE_ID: str(uuid4()),
            },
        )


def evolve(table: Table, declaration: Declaration, state: SchemaState) -> Table:
    """Add and widen columns for a new state, and lay out new files as declared, in one commit.

    Raises:
        CommitConflict: another process changed the table meanwhile; load it and merge again.
    """
    with translate_commit_errors(), table.transaction() as transaction:
        with transaction.update_schema() as update:
            update.union_by_name(table_schema(state, declaration.key))
        transaction.set_properties({**state.properties(), **_declared_properties(declaration)})
        _lay_out(transaction, declaration)
    return table


def _declared_properties(declaration: Declaration) -> dict[str, str]:
    """Return the properties that a table always has, and those that follow from the declaration.

    Iceberg names files after their partition, and messages name files: they must not hold a value of a record.
    """
    columns = {term.column for term in declaration.partition_spec or ()}
    of_records = columns & table_layout.RECORD_COLUMNS or columns - METADATA_COLUMNS.keys()
    return ROW_GROUPS | dict(declaration.table_properties) | (NAMELESS_PARTITIONS if of_records else {})


def other_layout(table: Table, declaration: Declaration) -> str:
    """Describe how the declared layout differs from the table's; '' if it does not."""
    schema, differences = table.schema(), []
    if declaration.partition_spec is not None:
        wanted = table_layout.partition_fields(declaration.partition_spec, property_keys.generation(table.properties))
        if {*wanted} != {*table_layout.partitioned_by(table.spec(), schema)}:
            differences.append(f"partition spec {', '.join(map(str, wanted))}")
    order = declaration.sort_order
    if order is not None and order != table_layout.sorted_by(table.sort_order(), schema):
        differences.append(f"sort order {', '.join(map(str, order))}")
    return " and ".join(differences)


def _lay_out(transaction: Transaction, declaration: Declaration) -> None:
    metadata = transaction.table_metadata
    if declaration.partition_spec is not None:
        generation = property_keys.generation(metadata.properties)
        wanted = table_layout.partition_fields(declaration.partition_spec, generation)
        there = dict(
            zip(table_layout.partitioned_by(metadata.spec(), metadata.schema()), metadata.spec().fields, strict=True)
        )
        with transaction.update_spec() as update:
            for term, field in there.items():
                if term not in wanted:
                    update.remove_field(field.name)
            for term in wanted:
                if term not in there:
                    update.add_field(term.column, term.transform, term.name)
    if declaration.sort_order is not None:
        with transaction.update_sort_order() as update:
            for term in declaration.sort_order:
                add = update.asc if term.direction is SortDirection.ASC else update.desc
                add(term.column, term.transform, term.nulls)


def table_schema(state: SchemaState, key_format: str) -> Schema:
    """Return the table's columns: the payload's, then the metadata's."""
    payload = spark_types.children(state.columns)
    key = {"bytes": BinaryType(), "string": StringType()}.get(key_format, payload.pop("kafka_key", None))
    columns = payload | METADATA_COLUMNS
    if key is None:
        # Before the first schema of a key its type is unknown.
        del columns["kafka_key"]
    else:
        columns["kafka_key"] = key
    return assign_fresh_schema_ids(Schema(*spark_types.struct(columns).fields))
