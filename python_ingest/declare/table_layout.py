"""The layout of a bronze table: the ingester's columns, partition spec and sort order."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from pyiceberg import partitioning
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import NullOrder, SortDirection, SortField, SortOrder
from pyiceberg.transforms import IdentityTransform, TimeTransform, Transform, parse_transform
from pyiceberg.types import BinaryType, IcebergType, IntegerType, LongType, StringType, StructType, TimestamptzType

from python_common.errors import UserError
from python_ingest.declare.spark_types import children, list_of, struct

METADATA_COLUMNS: dict[str, IcebergType] = {
    "kafka_topic": StringType(),
    "kafka_generation": IntegerType(),
    "kafka_partition": IntegerType(),
    "kafka_offset": LongType(),
    "kafka_timestamp": TimestamptzType(),
    "kafka_timestamp_type": IntegerType(),
    "kafka_headers": list_of(struct({"key": StringType(), "value": BinaryType()})),
    "kafka_key": StringType(),
    "kafka_raw_key": BinaryType(),
    "kafka_raw_value": BinaryType(),
    "key_schema_id": IntegerType(),
    "value_schema_id": IntegerType(),
    "decode_error": StringType(),
    "key_error": StringType(),
    "ingest_batch": LongType(),
    "ingested_at": TimestamptzType(),
}
# Iceberg writes columns of these names and then cannot read them back.
RESERVED = ("_file", "_pos", "_deleted", "_spec_id", "_partition", "_row_id", "_commit_snapshot_id")
# Table properties that begin like this may be declared: they change neither what is read nor what a commit means.
TABLE_PROPERTIES = (
    *("write.target-file-size-bytes", "write.parquet.", "write.metadata.previous-versions-max", "read.split."),
    *("read.parquet.", "history.expire.", "commit.manifest.", "commit.retry.", "comment", "owner"),
)
WHOLE_NUMBER = re.compile(r".*-(bytes|ms|max|count|retries|keep|level)")
# The columns with what producers have written, or what quotes it.
RECORD_COLUMNS = {"kafka_key", "kafka_raw_key", "kafka_raw_value", "kafka_headers", "decode_error", "key_error"}
# By the names that Spark and Iceberg know: of what is written with a number, that comes first.
TRANSFORMS = {f"{unit}{s}": unit for unit in ("year", "month", "day", "hour") for s in ("", "s")}
NUMBERED_TRANSFORMS = ("bucket", "truncate")
TERMS = "days(kafka_timestamp), bucket(16, id), truncate(4, name), or a column, to sort by with desc nulls last"
TERM = re.compile(
    r"(?:(?P<transform>\w+)\((?:(?P<number>[1-9]\d{0,8}), *)?(?P<of>\w+)\)|(?P<column>\w+))"
    r"(?: +(?P<direction>asc|desc))?(?: +nulls +(?P<nulls>first|last))?"
)


@dataclass(frozen=True)
class PartitionField:
    """A column, or what one of Iceberg's transforms makes of it; with a direction if rows are sorted by it."""

    column: str
    transform: Transform[Any, Any]
    direction: SortDirection | None = None
    nulls: NullOrder = NullOrder.NULLS_FIRST

    @property
    def name(self) -> str:
        """The name of the partition's field, as Iceberg gives it."""
        ending = str(self.transform).replace("truncate", "trunc").replace("[", "_").rstrip("]")
        return self.column if isinstance(self.transform, IdentityTransform) else f"{self.column}_{ending}"

    def __str__(self) -> str:
        name, _, number = str(self.transform).rstrip("]").partition("[")
        text = f"{name}({number}, {self.column})" if number else f"{name}s({self.column})"
        text = self.column if isinstance(self.transform, IdentityTransform) else text
        if self.direction:
            text += f" {self.direction.value} {self.nulls.value.replace('-', ' ')}"
        return text


def partition_field(value: Any) -> PartitionField:
    """Parse a term, for instance `days(kafka_timestamp)`; raises ValueError."""
    term = _read(value)
    if term.direction:
        raise ValueError(f"{value} has a direction, and partitions have none")
    return term


def sort_field(value: Any) -> PartitionField:
    """Read a term with a direction, `days(kafka_timestamp) desc nulls last`; raises as `partition_field`."""
    term = _read(value)
    return term if term.direction else replace(term, direction=SortDirection.ASC)


def _read(value: Any) -> PartitionField:
    if isinstance(value, PartitionField):
        return value
    refusal = ValueError(f"{value} is not a term, such as {TERMS}")
    match = TERM.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None:
        raise refusal
    name, number = match["transform"], match["number"]
    if name in NUMBERED_TRANSFORMS and number:
        transform = f"{name}[{number}]"
    elif not number and (name is None or name in TRANSFORMS):
        transform = TRANSFORMS[name] if name else "identity"
    else:
        raise refusal
    direction = SortDirection(match["direction"] or "asc") if match["direction"] or match["nulls"] else None
    # Iceberg's default: first where values ascend.
    nulls = match["nulls"] or ("last" if direction is SortDirection.DESC else "first")
    return PartitionField(
        match["of"] or match["column"], parse_transform(transform), direction, NullOrder(f"nulls-{nulls}")
    )


LANDING_DAY = (partition_field("days(ingested_at)"),)
# Statistics of files may give positions, so that a file must not mix Kafka's partitions: docs/exactly-once.md.
KAFKA_PARTITION = partition_field("kafka_partition")
GENERATION = partition_field("kafka_generation")


def check(terms: Iterable[PartitionField], columns: StructType, key: str, location: str) -> None:
    """Refuse terms of columns that a table does not have from its beginning, or that cannot be made of theirs."""
    key_column = {"string": StringType(), "bytes": BinaryType()}.get(key)
    types: dict[str, IcebergType | None] = {**METADATA_COLUMNS, "kafka_key": key_column, **children(columns)}
    seen: set[tuple[str, str]] = set()
    for term in terms:
        column = types.get(term.column)
        if column is None:
            raise UserError(
                f"{location}: there is no column {term.column} from the beginning",
                "Name one of the ingester's columns, or one that this table of the source gives a data_type",
            )
        if not term.transform.can_transform(column):
            raise UserError(f"{location}: {term} cannot be made of a column of type {column}", "Name another")
        # Iceberg takes one time transform of a column, and a bucket next to it.
        what = (term.column, "time" if isinstance(term.transform, TimeTransform) else str(term.transform))
        if what in seen:
            raise UserError(f"{location}: {term} adds nothing to another one of {term.column}", "Leave one out")
        seen.add(what)


def partition_fields(declared: tuple[PartitionField, ...], generation: int = 0) -> tuple[PartitionField, ...]:
    """Return the partition fields of a table: those declared, Kafka's partition, and a generation above 0."""
    needed = (KAFKA_PARTITION, GENERATION) if generation else (KAFKA_PARTITION,)
    return (*declared, *(term for term in needed if term not in declared))


def partition_spec(declared: tuple[PartitionField, ...] | None, schema: Schema) -> PartitionSpec:
    """Return the spec of a new table."""
    # Not by a time of the records: a backfill of years would open hundreds of files.
    terms = partition_fields(LANDING_DAY if declared is None else declared)
    return PartitionSpec(
        *(
            partitioning.PartitionField(schema.find_field(term.column).field_id, number, term.transform, term.name)
            for number, term in enumerate(terms, start=1000)
        )
    )


def sort_order(declared: tuple[PartitionField, ...] | None, schema: Schema) -> SortOrder:
    """Return the order of a new table; without a declaration none, and Kafka's remains."""
    return SortOrder(
        *(
            SortField(schema.find_field(term.column).field_id, term.transform, term.direction, term.nulls)
            for term in declared or ()
        )
    )


def partitioned_by(spec: PartitionSpec, schema: Schema) -> tuple[PartitionField, ...]:
    """Return the fields by which a table's new files are partitioned."""
    return tuple(
        PartitionField(str(schema.find_column_name(field.source_id)), field.transform) for field in spec.fields
    )


def sorted_by(order: SortOrder, schema: Schema) -> tuple[PartitionField, ...]:
    """Return the fields by which a table's new files are sorted."""
    return tuple(
        PartitionField(
            str(schema.find_column_name(field.source_id)), field.transform, field.direction, field.null_order
        )
        for field in order.fields
    )


def table_property(value: tuple[str, str]) -> tuple[str, str]:
    """Return name and setting of a table property; raise ValueError for one that may not be declared."""
    name, setting = value
    if not name.startswith(TABLE_PROPERTIES):
        raise ValueError(f"{name} may not be declared; names that may begin with {', '.join(TABLE_PROPERTIES)}")
    if WHOLE_NUMBER.fullmatch(name) and not setting.isdecimal():
        raise ValueError(f"{name} is a whole number, not {setting}")
    return value
