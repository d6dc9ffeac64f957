"""What a run shows: a progress bar per topic on a terminal, log lines elsewhere, a table at the end."""

import sys

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn

from python_common.log import log
from python_common.output import console, print_table
from python_ingest.bronze.commit import Landed
from python_ingest.landing.run import TopicResult


class ConsoleReporter(Progress):
    """Shows progress while it is entered as a context. Its methods may be called from threads."""

    def __init__(self) -> None:
        super().__init__(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[state]}"),
            console=console,
            disable=not console.is_terminal,
            # The log may go to a file while the bar is on the terminal.
            redirect_stderr=sys.stderr.isatty(),
        )
        self._by_topic: dict[str, TaskID] = {}

    def waiting(self, topic: str, offsets_left: int) -> None:
        """Show the offsets not yet landed."""
        if topic not in self._by_topic:
            self._by_topic[topic] = self.add_task(topic, total=None, state="")
        task = self.tasks[self._by_topic[topic]]
        state = "landing" if offsets_left else "caught up"
        if not offsets_left and task.fields["state"] != state and not console.is_terminal:
            log.info("%s: caught up", topic)
        # Offsets of transaction markers hold no record, so a topic that has caught up is full.
        self.update(task.id, total=task.completed + offsets_left, state=state)

    def landed(self, topic: str, what: Landed) -> None:
        """Show a committed batch."""
        self.advance(self._by_topic[topic], what.rows)
        if not console.is_terminal:
            done = self.tasks[self._by_topic[topic]].completed
            log.info(f"{topic}: {done:,} records landed, {what.dead_letters:,} dead letters in the last batch")

    def note(self, topic: str, text: str) -> None:
        """Log an event that is no error."""
        log.info("%s: %s", topic, text)


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
