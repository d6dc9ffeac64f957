"""Marker of erased rows: decode_error begins with MARK; only position and timestamps remain."""

from datetime import UTC, datetime

from pyiceberg.expressions.parser import parse
from pyiceberg.io.pyarrow import ArrowScan
from pyiceberg.table import Table

from python_common.catalog import property_keys
from python_common.catalog.catalog import translate_read_errors

MARK = "erased: "
ERASED = parse(f"decode_error like '{MARK}%'")


def mark(now: datetime) -> str:
    """Return the decode_error of a row that is erased now."""
    return f"{MARK}{now.astimezone(UTC):%Y-%m-%d}"


def failed(column: str) -> str:
    """Return the condition that a part could not be decoded, by its column of errors; erased rows are excluded."""
    return f"{column} is not null and {column} not like '{MARK}%'"


def rows_by_file(table: Table) -> dict[str, int]:
    """Return how many erased rows each current data file has, if any, by path; a UserError if a file is damaged."""
    if property_keys.HAS_ERASED_ROWS not in table.properties:
        return {}
    counts = {}
    scan = table.scan(ERASED, selected_fields=("kafka_offset",))
    for task in scan.plan_files():
        path = task.file.file_path
        with translate_read_errors(path):
            rows = ArrowScan(table.metadata, table.io, scan.projection(), ERASED).to_table([task])
        if len(rows):
            counts[path] = len(rows)
    return counts
