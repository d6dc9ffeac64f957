"""Writers that commit to one table at the same moment, each from the snapshot that it saw before."""

import threading

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

IDS = Schema(NestedField(1, "id", LongType(), required=False))


def ids(first: int) -> pa.Table:
    """Return a hundred rows."""
    return pa.table({"id": list(range(first, first + 100))})


def committed_at_once(catalog: Catalog, name: str, writers: int) -> tuple[list[int], list[int]]:
    """Let writers append at once, without a second try; return the ids whose commit succeeded, and those in the table,
    both in order."""
    catalog.create_namespace_if_not_exists("bronze")
    catalog.create_table(name, IDS, properties={"commit.retry.num-retries": "0"})
    tables = [catalog.load_table(name) for _ in range(writers)]
    won: list[int] = []

    def append(number: int) -> None:
        rows = ids(100 * number)
        try:
            tables[number].append(rows)
            won.extend(rows["id"].to_pylist())
        except CommitFailedException:
            pass

    threads = [threading.Thread(target=append, args=(number,)) for number in range(writers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sorted(won), sorted(catalog.load_table(name).scan().to_arrow()["id"].to_pylist())
