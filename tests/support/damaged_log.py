"""Damage in the log of the tests' broker."""

import os
import struct
from pathlib import Path

from tests.support.topic_fixture import TopicFixture


def damage_log(topic: TopicFixture, partition: int, *offsets: int) -> None:
    """Change a byte in the batches of Kafka's log that hold these offsets, so that their checksum is wrong."""
    home = Path(os.environ["LAKEHOUSE_HOME"]) / "kafka" / "data"
    [log] = (home / f"{topic.name}-{partition}").glob("*.log")
    data, at = log.read_bytes(), 0
    while at < len(data):
        # The format of a batch: its first offset, its length behind that, and 23 bytes on how many offsets follow.
        first, length = struct.unpack_from(">qi", data, at)
        (more,) = struct.unpack_from(">i", data, at + 23)
        if any(first <= offset <= first + more for offset in offsets):
            with log.open("r+b") as file:
                file.seek(at + 12 + length - 5)
                file.write(bytes([data[at + 12 + length - 5] ^ 0xFF]))
        at += 12 + length
