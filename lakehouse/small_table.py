"""Small Iceberg tables that Python keeps, such as histories: read as a whole, changed as a whole."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, get_args, get_type_hints

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import IcebergType, IntegerType, NestedField, StringType, TimestamptzType

from lakehouse.catalog import load_table, make_namespace
from lakehouse.commits import until_committed

ATTEMPTS = 10
PROPERTIES = {
    # A change is computed from the rows that were read: PyIceberg must not repeat it on top of other ones.
    "commit.retry.num-retries": "0",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
    # Nobody asks for what was there before, and a lease is changed all the time.
    "history.expire.max-snapshot-age-ms": "3600000",
}

TYPES: dict[type, IcebergType] = {str: StringType(), int: IntegerType(), datetime: TimestamptzType()}

Row = dict[str, Any]
Rows = dict[str, Row]


def columns_of(row: type) -> tuple[tuple[str, IcebergType, str], ...]:
    """Return the columns of a dataclass whose fields are annotated with their meaning."""
    annotations = ((name, *get_args(hint)) for name, hint in get_type_hints(row, include_extras=True).items())
    return tuple(
        (name, next(TYPES[kind] for kind in (data_type, *get_args(data_type)) if kind in TYPES), meaning)
        for name, data_type, meaning in annotations
    )


@dataclass(frozen=True)
class SmallTable:
    """A table of few rows. `columns` are name, type and meaning; the first, a text, is the key."""

    identifier: str
    columns: tuple[tuple[str, IcebergType, str], ...]

    def rows(self, catalog: Catalog) -> Rows:
        """Return the rows by key, in the key's order; a table that does not exist yet has none."""
        table = load_table(catalog, self.identifier)
        return {} if table is None else self._read(table)

    def change(self, catalog: Catalog, change: Callable[[Rows], Rows]) -> Rows:
        """Replace the rows by what `change` makes of them, and return these; the table is created on first use.

        Where another process was faster, `change` is asked again with its rows.

        Raises:
            UserError: others were faster every time.
        """

        def changed() -> Rows:
            table = load_table(catalog, self.identifier) or self._create(catalog)
            if len(table.schema().fields) < len(self.columns):
                # A release before this one made it.
                with table.update_schema() as update:
                    update.union_by_name(self._schema())
            before = self._read(table)
            after = change(before)
            if after != before:
                arrow = pa.Table.from_pylist(list(after.values()), schema_to_pyarrow(self._schema()))
                (table.overwrite if before else table.append)(arrow)
            return after

        return until_committed(changed, f"{self.identifier} was changed by others", "Run the command again", ATTEMPTS)

    def _create(self, catalog: Catalog) -> Table:
        make_namespace(catalog, self.identifier.partition(".")[0])
        return catalog.create_table(self.identifier, self._schema(), properties=PROPERTIES)

    def _schema(self) -> Schema:
        return Schema(
            *(
                NestedField(number, name, column_type, required=number == 1, doc=meaning)
                for number, (name, column_type, meaning) in enumerate(self.columns, start=1)
            )
        )

    def _read(self, table: Table) -> Rows:
        key = self.columns[0][0]
        rows = sorted(table.scan().to_arrow().to_pylist(), key=lambda row: row[key])
        nothing = dict.fromkeys(name for name, _, _ in self.columns)
        return {row[key]: nothing | row for row in rows}
