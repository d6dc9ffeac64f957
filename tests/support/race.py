"""Races: waits for another thread or process, and writers that commit to one table from the same snapshot."""

import threading
import time
from collections.abc import Callable

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

IDS = Schema(NestedField(1, "id", LongType(), required=False))


def until(holds: Callable[[], object], seconds: float = 30.0) -> None:
    """Wait until a condition holds, and fail the test if it does not in time."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if holds():
            return
        time.sleep(0.05)
    pytest.fail("it never came true")


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
