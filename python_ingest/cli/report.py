"""What a person sees of a run: a bar per topic on a terminal, lines elsewhere, a table at the end."""

from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn
from rich.table import Table

from python_ingest.landing.commit import Landed
from python_ingest.landing.run import TopicResult


class ConsoleReporter:
    """Shows progress while it is entered as a context. Its methods may be called from threads."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[state]}"),
            console=console,
            disable=not console.is_terminal,
        )
        self._tasks: dict[str, TaskID] = {}
        self._done: dict[str, int] = {}
        self._caught_up: set[str] = set()

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def waiting(self, topic: str, offsets_left: int) -> None:
        """So many offsets are still to be landed."""
        if topic not in self._tasks:
            self._tasks[topic] = self._progress.add_task(topic, total=None, state="")
            self._done[topic] = 0
        state = "landing" if offsets_left else "caught up"
        if not offsets_left and topic not in self._caught_up and not self._console.is_terminal:
            self._console.print(f"{topic}: caught up")
        (self._caught_up.discard if offsets_left else self._caught_up.add)(topic)
        # Offsets of transaction markers hold no record: caught up is full whatever was counted.
        total = self._done[topic] + offsets_left
        self._progress.update(self._tasks[topic], total=total, state=state)

    def landed(self, topic: str, what: Landed) -> None:
        """A batch is committed."""
        self._done[topic] += what.rows
        self._progress.update(self._tasks[topic], completed=self._done[topic])
        if not self._console.is_terminal:
            self._console.print(
                f"{topic}: {self._done[topic]:,} records landed, {what.dead_letters:,} dead letters in the last batch"
            )

    def note(self, topic: str, text: str) -> None:
        """Something happened that is no error."""
        self._console.print(f"{topic}: {text}")


def summary(results: list[TopicResult]) -> Table:
    """Return the table at the end of a run."""
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("topic", no_wrap=True)
    for column in ("records", "decoded", "dead\nletters", "batches", "seconds", "records\n/s", "lag"):
        table.add_column(column, justify="right", no_wrap=True, vertical="bottom")
    for result in results:
        table.add_row(
            result.topic,
            f"{result.records:,}",
            f"{result.records - result.dead_letters:,}",
            f"{result.dead_letters:,}",
            f"{result.batches:,}",
            f"{result.seconds:.1f}",
            f"{result.records / result.seconds:,.0f}" if result.records else "-",
            "unknown" if result.lag is None else f"{result.lag:,}",
        )
    return table


def too_many_dead_letters(result: TopicResult) -> str:
    """Return what to say of a topic over its limit."""
    return (
        f"{result.topic}: {result.dead_letters:,} of {result.records:,} records landed are dead letters, more than"
        f" max_dead_letters allows. `lakehouse ingest dead-letters {result.topic}` says why."
    )


def columns(rows: list[dict[str, Any]]) -> Table:
    """Return a plain table of rows that have the same keys; numbers stand to the right."""
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    for name, value in rows[0].items():
        table.add_column(name.replace("_", " "), justify="right" if isinstance(value, int) else "left")
    for row in rows:
        table.add_row(*("-" if value is None else str(value) for value in row.values()))
    return table
