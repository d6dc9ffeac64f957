"""Whether a table and a topic still belong together: the same topic id, and nothing lost in between."""

import json
from collections.abc import Mapping

from pyiceberg.table import Table

from python_common.catalog import property_keys
from python_common.catalog.commits import translate_commit_errors
from python_common.errors import UserError
from python_ingest.bronze.positions import Position
from python_ingest.declare import table_layout
from python_ingest.declare.table_layout import GENERATION
from python_ingest.declare.topics import Declaration
from python_ingest.kafka.admin import TopicState
from python_ingest.kafka.offset_range import OffsetRange


def record_topic_id(table: Table, topic: TopicState) -> None:
    """Record on a table the id of its topic and cluster. Before the first record, these may still change.

    Raises:
        CommitConflict: another process changed the table meanwhile.
    """
    names = {property_keys.TOPIC_ID: topic.topic_id, property_keys.CLUSTER_ID: topic.cluster_id}
    if not _filled(table) and any(table.properties.get(name) != value for name, value in names.items()):
        set_properties(table, names)


def check(table: Table, declaration: Declaration, topic: TopicState, position: Position) -> None:
    """Refuse a topic that is not the one the table was loaded from.

    Raises:
        UserError: another topic, a recreated topic, another cluster, or another format of keys.
    """
    for name, label, actual in (
        (property_keys.TOPIC, "topic", declaration.topic),
        (property_keys.CLUSTER_ID, "cluster id", topic.cluster_id),
        (property_keys.TOPIC_ID, "topic id", topic.topic_id),
        (property_keys.KEY_FORMAT, "keys declared as", declaration.key),
    ):
        stored = table.properties.get(name)
        if stored != actual and (_filled(table) or name in (property_keys.TOPIC, property_keys.KEY_FORMAT)):
            ends = sorted(position.next_offsets.items())
            landed = ", ".join(f"{partition} up to offset {until - 1}" for partition, until in ends if until)
            raise UserError(
                f"{declaration.identifier} was loaded from {label} {stored} (partition {landed}),"
                f" but {declaration.topic} now has {actual}",
                "Go back to what the table was loaded from, land it in a new table (declare another name), or, if the"
                f" topic was recreated, run `lakehouse ingest rebind {declaration.topic}`"
                if _filled(table)
                else "The table holds no record: drop it, or go back to what it was made for",
            )


def rebind(table: Table, declaration: Declaration, topic: TopicState, start: Mapping[int, int]) -> int:
    """Record the id of a recreated topic in its table, in one commit, and return the new generation.

    `start` maps each partition to the first offset that is landed.

    Raises:
        UserError: the table has no rows of a topic with this name and another id.
        CommitConflict: another process changed the table meanwhile.
    """
    name, topic_id = map(table.properties.get, (property_keys.TOPIC, property_keys.TOPIC_ID))
    if not _filled(table) or name != declaration.topic or topic_id == topic.topic_id:
        raise UserError(
            f"{declaration.identifier} has no rows of another {declaration.topic}: nothing changed",
            f"Run `lakehouse ingest run {declaration.topic}`",
        )
    generation = property_keys.generation(table.properties) + 1
    properties = {
        property_keys.TOPIC_ID: topic.topic_id,
        property_keys.CLUSTER_ID: topic.cluster_id,
        property_keys.GENERATION: str(generation),
        property_keys.GENERATION_START: json.dumps(start),
        "write.metadata.metrics.column.kafka_generation": "full",
    }
    gaps = [name for name in table.properties if name.startswith(property_keys.ACCEPTED_GAPS)]
    with translate_commit_errors(), table.transaction() as transaction:
        if GENERATION not in table_layout.partitioned_by(table.spec(), table.schema()):
            with transaction.update_spec() as update:
                update.add_field(GENERATION.column, GENERATION.transform, GENERATION.name)
        transaction.remove_properties(*gaps)
        transaction.set_properties(properties)
    return generation


def _filled(table: Table) -> bool:
    return table.current_snapshot() is not None


def accept_gaps(table: Table, topic: str, gaps: list[OffsetRange], accept: bool, is_damage: bool = False) -> None:
    """Note ranges that the broker deleted before they were landed, or has with damage; a noted one is accepted.

    Each is a separate property: `lakehouse.accepted-gap.<partition>.<start>` = `<until>`.

    Raises:
        UserError: a range is not noted, and not to be accepted either.
        CommitConflict: another process changed the table meanwhile.
    """
    notes = {f"{property_keys.accepted_gap(gap.partition)}{gap.start}": str(gap.until) for gap in gaps}
    new = {name: until for name, until in notes.items() if table.properties.get(name) != until}
    if new and not accept:
        ranges = ", ".join(f"offsets {gap.start} to {gap.until - 1} of partition {gap.partition}" for gap in gaps)
        raise UserError(
            f"{topic}: the checksum of {ranges} is wrong in Kafka's log"
            if is_damage
            else f"{topic}: retention deleted {ranges} before they were landed",
            "Restore the records, or go on without them by --accept-gap, which notes the range on the table",
        )
    if new:
        set_properties(table, new)


def set_properties(table: Table, properties: Mapping[str, str]) -> None:
    """Set properties of a table.

    Raises:
        CommitConflict: another process changed the table meanwhile.
    """
    with translate_commit_errors(), table.transaction() as transaction:
        transaction.set_properties(dict(properties))
