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
        print("batch", flush=True)

    def note(self, topic: str, text: str) -> None:
        """Print nothing."""


def main(topic: str) -> None:
    """Land the topic once for each line `table batch-records` on stdin; a table of bronze as the project declares it.

    Answer each with the rows landed, after a line `batch` for each commit.
    """
    settings = from_environment()
    spark = LazySparkSession(settings)
    declared = {(declaration.topic, declaration.table): declaration for declaration in read_declarations()}
    for line in sys.stdin:
        table, batch = line.split()
        declaration = declared.get((topic, table)) or Declaration(topic, "bench", table, "string", "dead_letter")
        (result,) = Ingester(settings, spark, Options(int(batch)), Batches()).catch_up([declaration])
        if result.error is not None:
            raise result.error
        print(result.records, flush=True)
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
