"""`uv run --no-project --with sqlmesh==VERSION table_diff.py`: what SQLMesh's table_diff counts of pairs of tables.

It reads `[[files before, files after], ...]` from stdin, whose rows have the key `key`, and writes
`[{"differ": rows, "seconds": seconds}, ...]`, with null for the rows of a pair at which DuckDB fails. The seconds are
those of the comparison, without the start of SQLMesh.
"""

import json
import sys
import time

import duckdb
from sqlmesh.core.engine_adapter.duckdb import DuckDBEngineAdapter
from sqlmesh.core.table_diff import TableDiff


def compared(before: list[str], after: list[str]) -> dict[str, float | None]:
    """Return how many rows differ by table_diff, and its seconds."""
    with duckdb.connect(config={"threads": 2}) as database:
        for name, files in (("before", before), ("after", after)):
            database.execute(f"create view {name} as from read_parquet({files})")
        adapter = DuckDBEngineAdapter(lambda: database, default_catalog="memory")
        start = time.monotonic()
        try:
            stats = TableDiff(adapter=adapter, source="before", target="after", on=["key"]).row_diff().stats
        except duckdb.Error:
            return {"differ": None, "seconds": time.monotonic() - start}
        differ = stats["join_count"] - stats["full_match_count"] + stats["s_only_count"] + stats["t_only_count"]
        return {"differ": int(differ), "seconds": time.monotonic() - start}


if __name__ == "__main__":
    print(json.dumps([compared(*pair) for pair in json.load(sys.stdin)]))
