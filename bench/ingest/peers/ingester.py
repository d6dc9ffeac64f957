"""Peer: the ingester, one process and one Spark session for all jobs."""

import sys

from python_common.config.settings import from_environment
from python_common.spark.session import LazySparkSession
from python_ingest.bronze.commit import Landed
from python_ingest.declare.topics import Declaration, read_declarations
from python_ingest.landing.run import Ingester, Options, Reporter


class Batches(Reporter):
    """Prints a line when a batch is committed."""

    def waiting(self, topic: str, offsets_left: int) -> None:
        """Print nothing."""

    def landed(self, topic: str, what: Landed) -> None:
        """Print that a batch is committed."""
        # In one call: several threads land topics.
        sys.stdout.write("batch\n")
        sys.stdout.flush()

    def note(self, topic: str, text: str) -> None:
        """Print nothing."""


def main(topics: str) -> None:
    """Land topics, separated by commas, once for each line `table batch-records` on stdin.

    A single topic is landed in the table, one of bronze as the project declares it; of several each in one of its
    number. A line that comes again is a later run of the same process. Answer each with the rows landed, after a line
    `batch` for each commit.
    """
    settings = from_environment()
    spark = LazySparkSession(settings)
    declared = {(declaration.topic, declaration.table): declaration for declaration in read_declarations()}
    names, runs = topics.split(","), dict[str, tuple[Ingester, list[Declaration]]]()
    for line in sys.stdin:
        table, batch = line.split()
        if line not in runs:
            tables = {topic: f"{table}_{number}" if len(names) > 1 else table for number, topic in enumerate(names)}
            runs[line] = (
                Ingester(settings, spark, Options(int(batch)), Batches()),
                [declared.get(landing) or Declaration(landing[0], "bench", landing[1]) for landing in tables.items()],
            )
        ingester, declarations = runs[line]
        results = ingester.catch_up(declarations)
        for result in results:
            if result.error is not None:
                raise result.error
        print(sum(result.records for result in results), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
