"""Exact sums of numbers of up to 38 digits, and of any number of them: in DuckDB as text, in Python by a context."""

from decimal import Context, Decimal

from python_export.datasets.snapshot import TableColumn

# Sums of 38-digit numbers have fewer digits in every file; Python's default context would round to 28.
EXACT = Context(prec=100)
# DuckDB adds up decimals in 38 digits, which leaves 10 for the number of rows.
NARROW_DIGITS = 28


def total(cell: str, column: TableColumn) -> str:
    """Return the SQL of the sum of a numeric column, which `plain` writes without an exponent; 0 without rows."""
    if column.precision <= NARROW_DIGITS:
        return f"cast(coalesce(sum({cell}), 0) as varchar)"
    unscaled = f"cast(replace(cast({cell} as varchar), '.', '') as bignum)"
    return f"cast(coalesce(sum({unscaled}), 0) as varchar) || 'E-{column.scale}'"


def text(cell: str, column: TableColumn) -> str:
    """Return the SQL of the text that Spark writes of a cell: DuckDB writes a decimal(2,2) as `.50`."""
    written = f"cast({cell} as varchar)"
    return f"regexp_replace({written}, '^(-?)[.]', '\\10.')" if column.scale == column.precision else written


def plain(total: str) -> str:
    """Return the text of a number without an exponent, with its decimal places."""
    return f"{Decimal(total):f}"
