"""Landings of a topic in new tables: each is counted, and its table dropped."""

import shutil
from collections.abc import Callable
from pathlib import Path

from pyiceberg.table import Table

from bench.ingest import commands, topic
from bench.ingest.peer import Job, Peer
from python_common.catalog.catalog import load_catalog
from python_common.config.settings import Settings
from python_common.output import console


class Bench:
    """The topics and tables of a run; counts what was landed and deletes it."""

    def __init__(self, settings: Settings, logs: Path) -> None:
        self.settings = settings
        self.logs = logs
        self._tables = 0

    def fill(self, name: str, records: int) -> None:
        """Put the records into a topic."""
        console.print(f"{name}: producing {records:,} payments")
        topic.fill(self.settings, name, records)

    def start(self, name: str, topic_name: str) -> Peer:
        """Start a peer."""
        return Peer(name, commands.command(name, topic_name, self.settings), self.logs / f"{name}.log")

    def land(
        self,
        peer: Peer,
        records: int,
        batch_records: int,
        lands: bool = True,
        inspect: Callable[[Table], None] = lambda _: None,
    ) -> Job | None:
        """Land the topic in a new table, count its rows, and drop it; `lands` is False for a peer that only reads.

        `inspect` gets the table before it is dropped.

        Returns:
            None if the count is wrong, which is printed: such a job has no figures.
        """
        self._tables += 1
        table = f"landed_{self._tables}"
        job = peer.land(table, batch_records)
        rows = self._count_and_drop(table, inspect) if lands else job.rows
        if rows != records:
            console.print(f"{peer.name}: wrong, {rows:,} rows of {records:,} are in the table; no figures")
            return None
        return job

    def _count_and_drop(self, name: str, inspect: Callable[[Table], None]) -> int:
        catalog = load_catalog(self.settings)
        table = catalog.load_table(f"bench.{name}")
        rows = table.scan().count()
        inspect(table)
        catalog.drop_table(f"bench.{name}")
        shutil.rmtree(table.location().removeprefix("file:"))
        return rows
