"""The table behind a dataset as it stood at one snapshot: which week it holds, and its columns."""

from dataclasses import dataclass

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table as IcebergTable
from pyiceberg.types import (
    BooleanType,
    DateType,
    DecimalType,
    IcebergType,
    IntegerType,
    LongType,
    StringType,
    TimestamptzType,
)

from lakehouse.errors import UserError
from python_export.datasets import Dataset, Table
from python_export.manifest import Manifest

WEEK_PROPERTY = "lakehouse.week"
THRESHOLD_PROPERTY = "lakehouse.small-group-threshold"

# Types with one exact text form. Floats are not among them: their text and their sums differ between engines.
TYPE_NAMES: dict[type[IcebergType], str] = {
    StringType: "string",
    IntegerType: "int",
    LongType: "bigint",
    BooleanType: "boolean",
    DateType: "date",
    TimestamptzType: "timestamp",
}


@dataclass(frozen=True)
class Column:
    """A column of the export; `type` is Spark's name for it, for instance `decimal(12,2)`."""

    name: str
    type: str

    @property
    def is_text(self) -> bool:
        return self.type == "string"

    @property
    def is_numeric(self) -> bool:
        return self.type in {"int", "bigint"} or self.type.startswith("decimal")


@dataclass(frozen=True)
class Source:
    """A dataset's table at one snapshot."""

    dataset: Dataset
    table: IcebergTable
    snapshot_id: int
    columns: tuple[Column, ...]

    @property
    def week(self) -> str | None:
        """The label of the week the table holds."""
        return self.table.properties.get(WEEK_PROPERTY)


def find(catalog: Catalog, dataset: Dataset) -> Source | None:
    """Return a dataset's table at its current snapshot, or None when it does not exist or was never written.

    Raises:
        UserError: a column has a type that CSV cannot hold exactly, or a declared key or order column is missing.
    """
    try:
        table = catalog.load_table((dataset.table.schema, dataset.table.name))
    except NoSuchTableError:
        return None
    snapshot = table.current_snapshot()
    return _source(dataset, table, snapshot.snapshot_id) if snapshot else None


def at(catalog: Catalog, manifest: Manifest) -> Source:
    """Return the table of a published version at the snapshot that the version was made from.

    Raises:
        UserError: the table or the snapshot is gone.
    """
    dataset = Dataset(
        name=manifest.dataset,
        model=manifest.source_table,
        table=Table(*identifier(manifest)),
        key=tuple(manifest.key),
        order_by=tuple(manifest.order_by),
        topics=(),
    )
    snapshot_id = int(manifest.source_snapshot_id)
    try:
        table = catalog.load_table(identifier(manifest))
    except NoSuchTableError:
        table = None
    if table is None or table.snapshot_by_id(snapshot_id) is None or not manifest.key:
        raise UserError(
            f"{manifest.source_table} no longer has the snapshot that {manifest.path} was made from",
            "Versions of release 0.3 were not kept; nothing else should drop the table or its tags",
        )
    return _source(dataset, table, snapshot_id)


def identifier(manifest: Manifest) -> tuple[str, str]:
    """Return schema and name of the table of a version."""
    _, schema, name = manifest.source_table.split(".")
    return schema, name


def _source(dataset: Dataset, table: IcebergTable, snapshot_id: int) -> Source:
    fields = table.scan(snapshot_id=snapshot_id).projection().fields
    columns = tuple(Column(field.name, _type_name(dataset, field.name, field.field_type)) for field in fields)
    missing = {*dataset.key, *dataset.order_by} - {column.name for column in columns}
    if missing:
        raise UserError(
            f"{dataset.model} has no column {', '.join(sorted(missing))}, which its key or order names",
            "Correct config.meta.export of the model",
        )
    return Source(dataset, table, snapshot_id, columns)


def _type_name(dataset: Dataset, column: str, iceberg_type: IcebergType) -> str:
    if isinstance(iceberg_type, DecimalType):
        return f"decimal({iceberg_type.precision},{iceberg_type.scale})"
    name = TYPE_NAMES.get(type(iceberg_type))
    if name is None:
        raise UserError(
            f"Column {column} of {dataset.model} is a {iceberg_type}, which has no exact form in CSV",
            f"Cast it in the model to decimal or to one of {', '.join(TYPE_NAMES.values())}",
        )
    return name
