"""Whether a table and a topic still belong together: the same incarnation, and nothing lost in between."""

from pyiceberg.table import Table

from lakehouse.errors import UserError
from python_ingest.broker import TopicState
from python_ingest.offsets import OffsetRange, Position
from python_ingest.topics import Declaration


def check(table: Table, declaration: Declaration, topic: TopicState, position: Position) -> None:
    """Refuse a topic that is not the one the table was filled from.

    Raises:
        UserError: another topic, a recreated topic, another cluster, or another format of keys.
    """
    for name, label, actual in (
        ("topic", "topic", declaration.topic),
        ("cluster-id", "cluster", topic.cluster_id),
        ("topic-id", "incarnation of the topic", topic.topic_id),
        ("key", "keys declared as", declaration.key),
    ):
        stored = table.properties.get(f"lakehouse.{name}")
        if stored != actual:
            ends = sorted(position.next_offsets.items())
            held = ", ".join(f"{partition} up to offset {until - 1}" for partition, until in ends if until)
            raise UserError(
                f"{declaration.identifier} was filled from {label} {stored} (partition {held}),"
                f" but {declaration.topic} is now {actual}",
                "Land it in a new table (declare another name), or go back to what the table was filled from",
            )


def accept_gaps(table: Table, topic: str, gaps: list[OffsetRange], accept: bool) -> None:
    """Note ranges that the broker deleted before they were landed, each as a property of its own:
    `lakehouse.accepted-gap.<partition>.<start>` = `<until>`. What is noted already is accepted.

    Raises:
        UserError: a range is not noted, and not to be accepted either.
    """
    notes = {f"lakehouse.accepted-gap.{gap.partition}.{gap.start}": str(gap.until) for gap in gaps}
    new = {name: until for name, until in notes.items() if table.properties.get(name) != until}
    if new and not accept:
        ranges = ", ".join(f"offsets {gap.start} to {gap.until - 1} of partition {gap.partition}" for gap in gaps)
        raise UserError(
            f"{topic}: retention deleted {ranges} before they were landed",
            "Restore the records, or go on without them by --accept-gap, which notes the range on the table",
        )
    if new:
        with table.transaction() as transaction:
            transaction.set_properties(new)
