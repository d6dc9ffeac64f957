"""The rows of a week in a dataset's table, as they stood at one snapshot: their columns, and what made them."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyiceberg.types import DecimalType, IcebergType

from python_common.catalog import property_keys
from python_common.catalog.catalog import load_table
from python_common.errors import UserError
from python_common.weeks import IsoWeek
from python_export.datasets.declared import Dataset
from python_ingest.declare.spark_types import SPARK_NAMES

# Types with one exact text form. Floats are not among them: their text and their sums differ between engines.
EXACT = ("string", "int", "bigint", "boolean", "date", "timestamp")


@dataclass(frozen=True)
class TableColumn:
    """A column of the export; `type` is Spark's name for it, for instance `decimal(12,2)`."""

    name: str
    type: str

    @property
    def is_text(self) -> bool:
        """Whether a cell may be an empty string, which is not NULL."""
        return self.type == "string"

    @property
    def is_numeric(self) -> bool:
        """Whether it has a control total."""
        return self.type in {"int", "bigint"} or self.type.startswith("decimal")

    @property
    def precision(self) -> int:
        """The digits of a numeric column."""
        return int(self.type.partition("(")[2].partition(",")[0] or 19)

    @property
    def scale(self) -> int:
        """The decimal places of a numeric column."""
        return int(self.type.rstrip(")").partition(",")[2] or 0)


@dataclass(frozen=True)
class Source:
    """A dataset's table at one snapshot: the rows of `week`, all rows without one."""

    dataset: Dataset
    table: Table
    snapshot_id: int
    columns: tuple[TableColumn, ...]
    week: IsoWeek | None = None
    # Hashes of the keys of rows that are not published, and how many of them there are by reason.
    without: frozenset[str] = frozenset()
    withheld: Mapping[str, int] = field(default_factory=dict)
    # Whether the formula guard counts leading quotes; versions of releases before 0.6 do not.
    guards_quotes: bool = True

    @property
    def summary(self) -> Mapping[str, str]:
        """What the build wrote into the snapshot's summary with the rows; empty if another program wrote these."""
        snapshot = self.table.snapshot_by_id(self.snapshot_id)
        return snapshot.summary.additional_properties if snapshot and snapshot.summary else {}


def require_week(catalog: Catalog, dataset: Dataset, week: IsoWeek, builds: Collection[str] = ()) -> Source:
    """Return a week of a dataset's table, as it was tested: by one of the builds with these ids, if there are any.

    Raises:
        UserError: it was not built and tested for the week, or as of `of_snapshot`.
    """
    table = load_table(catalog, dataset.table)
    # Set at the end of a build whose tests passed (macros/tag_tested.sql): not on what somebody wrote later.
    tag = table.refs().get(f"tested-{week}") if table else None
    if table is None or tag is None:
        raise UserError(
            f"{dataset.model} was not built and tested for {week}",
            f"Run `dbt build --select +{dataset.model} --vars '{{week: {week}}}'`, or export without --no-build. "
            "`dbt retry` is not enough: it tests a part",
        )
    source = of_snapshot(dataset, table, tag.snapshot_id, week)
    # dbt does not build an unchanged table again: its current snapshot is then of an earlier build.
    is_unchanged = source.snapshot_id == source.table.metadata.current_snapshot_id
    if builds and source.summary.get(property_keys.INVOCATION_ID) not in builds and not is_unchanged:
        raise UserError(
            f"{dataset.model} was not tested for {week} by the build of this run",
            "Run it again: another writer may have come between the build and its tests",
        )
    return source


def of_snapshot(dataset: Dataset, table: Table, snapshot_id: int, week: IsoWeek | None = None) -> Source:
    """Return the rows of a table, or of one week of it, at a snapshot.

    Raises:
        UserError: a column has no exact form in CSV, or one that the dataset names is not there.
    """
    fields = table.scan(snapshot_id=snapshot_id).projection().fields
    columns = tuple(TableColumn(field.name, _type_name(dataset, field.name, field.field_type)) for field in fields)
    named = (*dataset.key, *dataset.order_by, dataset.week_column, dataset.at, dataset.suppressed)
    missing = {name for name in named if name} - {column.name for column in columns}
    if missing:
        raise UserError(
            f"{dataset.model} has no column {', '.join(sorted(missing))}, which its declaration names",
            "Correct config.meta.export of the model",
        )
    return Source(dataset, table, snapshot_id, columns, week)


def _type_name(dataset: Dataset, column: str, iceberg_type: IcebergType) -> str:
    if isinstance(iceberg_type, DecimalType):
        return f"decimal({iceberg_type.precision},{iceberg_type.scale})"
    name = SPARK_NAMES.get(iceberg_type, "")
    if name not in EXACT:
        raise UserError(
            f"Column {column} of {dataset.model} is a {iceberg_type}, which has no exact form in CSV",
            f"Cast it in the model to decimal or to one of {', '.join(EXACT)}",
        )
    return name
