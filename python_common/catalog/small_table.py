"""Small Iceberg tables that Python keeps, such as histories: read as a whole, changed as a whole.

A dataclass declares the columns: each field is annotated with its type and meaning, and with an Iceberg type if it has
another than TYPES gives. The first field, a text, is the key.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, TypeVar, get_args, get_type_hints

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import IcebergType, IntegerType, NestedField, StringType, TimestamptzType

from python_common.catalog.catalog import load_table, make_namespace
from python_common.catalog.commits import until_committed

ATTEMPTS = 10
PROPERTIES = {
    # A change is computed from the rows that were read: PyIceberg must not repeat it on top of other ones.
    "commit.retry.num-retries": "0",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
    # No reader needs what was there before, and a lease is changed all the time.
    "history.expire.max-snapshot-age-ms": "3600000",
}

TYPES: dict[type, IcebergType] = {str: StringType(), int: IntegerType(), datetime: TimestamptzType()}

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Row = TypeVar("Row", bound="DataclassInstance")


@dataclass(frozen=True)
class SmallTable(Generic[Row]):
    """A table of few rows, each an object of a dataclass."""

    identifier: str
    row: type[Row]

    def rows(self, catalog: Catalog) -> dict[str, Row]:
        """Return the rows by key, in the key's order; a table that does not exist yet has none."""
        table = load_table(catalog, self.identifier)
        return {} if table is None else self._read(table)

    def change(self, catalog: Catalog, change: Callable[[dict[str, Row]], dict[str, Row]]) -> dict[str, Row]:
        """Replace the rows by what `change` makes of them, and return these; the table is created on first use.

        Where another process was faster, `change` is asked again with its rows.

        Raises:
            UserError: others were faster every time.
        """

        def changed() -> dict[str, Row]:
            table = load_table(catalog, self.identifier) or self._create(catalog)
            schema = self._schema()
            if len(table.schema().fields) < len(schema.fields):
                # A release before this one made it.
                with table.update_schema() as update:
                    update.union_by_name(schema)
            before = self._read(table)
            after = change(before)
            if after != before:
                # Without field ids, columns match by name: an older table may have one that the rows lack.
                arrow = pa.Table.from_pylist(
                    [asdict(row) for row in after.values()], schema_to_pyarrow(schema, include_field_ids=False)
                )
                (table.overwrite if before else table.append)(arrow)
            return after

        return until_committed(changed, f"{self.identifier} was changed by others", "Run the command again", ATTEMPTS)

    def _create(self, catalog: Catalog) -> Table:
        make_namespace(catalog, self.identifier.partition(".")[0])
        return catalog.create_table(self.identifier, self._schema(), properties=PROPERTIES)

    def _schema(self) -> Schema:
        fields = []
        for number, (name, hint) in enumerate(self._columns().items(), start=1):
            kind, meaning, *iceberg = get_args(hint)
            column = iceberg[0] if iceberg else next(TYPES[part] for part in (kind, *get_args(kind)) if part in TYPES)
            fields.append(NestedField(number, name, column, required=number == 1, doc=meaning))
        return Schema(*fields)

    def _read(self, table: Table) -> dict[str, Row]:
        key, *_ = columns = self._columns()
        rows = sorted(table.scan().to_arrow().to_pylist(), key=lambda row: row[key])
        # An older table lacks columns, one of a newer release has more.
        return {row[key]: self.row(**{name: row.get(name) for name in columns}) for row in rows}

    def _columns(self) -> dict[str, Any]:
        return get_type_hints(self.row, include_extras=True)
