"""Dead letters of a topic: foreign bytes, and records whose schema is registered later."""

from typing import Any

from tests.support.topic_fixture import TopicFixture, record


def schema(topic: TopicFixture, name: str) -> dict[str, Any]:
    """Return a schema with another text, and so another id."""
    return record(name, id="int") | {"doc": topic.name}


def land_dead_letters(topic: TopicFixture) -> int:
    """Land 3 good records, 6 whose schema is not registered yet, and 1 of foreign bytes; return the missing id."""
    good = topic.register(schema(topic, "good"))
    missing = topic.register(schema(topic, "probe")) + 1
    for index in range(9):
        value = topic.encode(good, {"id": index})
        if index >= 3:
            value = b"\x00" + missing.to_bytes(4, "big") + value[5:]
        topic.produce(value, index % 3, key=str(index).encode(), headers={"trace": b"t"})
    topic.produce(b"foreign bytes", 1)
    result = topic.land_well()
    assert (result.records, result.dead_letters) == (10, 7)
    return missing


def register_late(topic: TopicFixture, missing: int) -> None:
    assert topic.register(schema(topic, "late")) == missing, "another schema was registered in between"
