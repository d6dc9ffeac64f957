"""Words of SQL that are no names of columns: Spark's, as sqlfluff and sqlglot know them."""

from pathlib import Path

# RESERVED words do not parse without quotes; KEYWORDS do, but as the alias of a column they mislead a reader.
RESERVED, KEYWORDS = (
    frozenset((Path(__file__).parent / name).read_text().split()) for name in ("reserved.txt", "keywords.txt")
)
