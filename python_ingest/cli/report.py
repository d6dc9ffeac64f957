"""The table at the end of a run."""

from python_common.output import print_table
from python_ingest.landing.run import TopicResult


def print_summary(results: list[TopicResult]) -> None:
    """Print the table at the end of a run."""
    headings = ("topic", "records", "decoded", "dead letters", "batches", "seconds", "records/s", "lag")
    rows = [
        (
            result.topic,
            f"{result.records:,}",
            f"{result.records - result.dead_letters:,}",
            f"{result.dead_letters:,}",
            f"{result.batches:,}",
            f"{result.seconds:.1f}",
            f"{result.records / result.seconds:,.0f}" if result.records else None,
            "unknown" if result.lag is None else f"{result.lag:,}",
        )
        for result in results
    ]
    print_table(headings, rows)
