"""Decoding on a real broker and registry: every Avro kind, several writers, keys of any sort, poison."""

import datetime as dt
import random
from typing import Any

import pytest

from python_ingest.kafka import consumer, registry
from python_ingest.kafka.message import HEADER_BYTES
from python_ingest.landing import batch
from python_ingest.maintenance import replay
from python_ingest.maintenance.status import topic_statuses
from tests.support.avro_versions import avro_long
from tests.support.topic_fixture import (
    SALE,
    TopicFixture,
    assert_columns_hold_what_bytes_encode,
    assert_no_column_differs,
    record,
)

MOMENT = dt.datetime(2026, 11, 16, 12, 30, 15, 250_000, tzinfo=dt.UTC)


def test_a_record_lands_with_all_kafka_metadata(topic: TopicFixture) -> None:
    schema_id = topic.register(SALE)
    value = topic.encode(schema_id, {"id": 1, "note": "n"})
    headers = [("trace", b"\x01"), ("empty", None)]
    topic.produce(value, partition=2, key=b"k-1", timestamp=int(MOMENT.timestamp() * 1000), headers=headers)
    result = topic.land_well()
    assert (result.records, result.dead_letters, result.batches) == (1, 0, 1)
    (row,) = topic.rows()
    assert abs(dt.datetime.now(dt.UTC) - row.pop("ingested_at")) < dt.timedelta(minutes=5)
    assert row == {
        "id": 1,
        "note": "n",
        "kafka_topic": topic.name,
        "kafka_generation": None,
        "kafka_partition": 2,
        "kafka_offset": 0,
        "kafka_timestamp": MOMENT,
        "kafka_timestamp_type": 0,
        "kafka_headers": [{"key": "trace", "value": b"\x01"}, {"key": "empty", "value": None}],
        "kafka_key": "k-1",
        "kafka_raw_key": b"k-1",
        "kafka_raw_value": value,
        "key_schema_id": None,
        "value_schema_id": schema_id,
        "decode_error": None,
        "key_error": None,
        "ingest_batch": 1,
    }


def test_poison_is_a_dead_letter_and_its_neighbours_land(topic: TopicFixture) -> None:
    lines = {"type": "array", "items": record("line", price="double")}
    schema_id = topic.register(record("sale", big="long", blob="bytes", lines=lines))
    good = topic.encode(schema_id, {"big": 2**63 - 1, "blob": b"\x00\xff", "lines": [{"price": 1.5}, {"price": 2.5}]})
    header = good[:5]
    failed = f"decode_failed: schema id {schema_id}"
    trades = f"{topic.name}-trades"
    foreign = topic.register_under(trades, record(f"trade_{topic.declaration.table}", blob="string", more="int"))
    unfit = topic.register(record("sale", big="string"))
    poison: dict[bytes, str] = {
        **dict.fromkeys((b"", b"\x00\x00\x00"), "not_registry_avro: shorter than 5 bytes"),
        b"\x01" + good[1:]: "not_registry_avro: the first byte is not 0",
        b"\x00\x7f\xff\xff\xff" + good[5:]: "unknown_schema_id: schema id 2147483647",
        b"\x00\xff\xff\xff\xff" + good[5:]: "unknown_schema_id: the id is negative",
        topic.encode(foreign, {"blob": "b", "more": 1}): f"foreign_schema: schema id {foreign} belongs to {trades}",
        topic.encode(unfit, {"big": "x"}): f"incompatible_schema: schema id {unfit}, big: long cannot become string",
        good.replace(avro_long(2**63 - 1), b"\xff" * 12 + b"\x01"): failed,
        **{good[:length]: failed for length in range(5, len(good))},
    }
    for length in (10_000_000, 2**28, 2**30, 2**31 - 20, 2**40, -7, 2**62):
        poison[header + avro_long(1) + avro_long(length) + b"abc"] = failed
    for length in (2**28, 2**31 - 20, 2**40, -(2**40)):
        poison[header + avro_long(1) + avro_long(0) + avro_long(length)] = failed
    # Bytes behind a record are ignored.
    produced = [good, *(good + rest for rest in (b"\0", b"\xff" * 20, good))]
    for value in poison:
        produced += [value, good]
    for value in produced:
        topic.produce(value)
    result = topic.land_well()
    assert (result.records, result.dead_letters) == (len(produced), len(poison))
    rows = topic.rows()
    assert [row["kafka_raw_value"] for row in rows] == produced
    assert [row["decode_error"] for row in rows] == [poison.get(value) for value in produced]
    assert [row["blob"] for row in rows] == [None if value in poison else b"\x00\xff" for value in produced]
    assert_no_column_differs(topic, len(rows))


def test_an_unknown_framing_is_named_and_never_decoded(topic: TopicFixture) -> None:
    schema_id = topic.register(record("r", a="long", b="long"))
    framed = topic.encode(schema_id, {"a": 1, "b": 2})
    guid = b"\x01" + bytes(range(16))
    header, unknown = "unknown_framing: the schema's id is in a header of the record", "unknown_schema_id: schema id"
    # What follows the header, or an id of 8 bytes, could be read as a framed record, too.
    cases: list[tuple[bytes, list[tuple[str, bytes]], str | None]] = [
        (framed[5:], [("__value_schema_id", guid)], header),
        (framed, [("trace", b"x"), ("__value_schema_id", guid)], header),
        (framed, [("apicurio.value.globalId", bytes(8))], header),
        (b"", [("apicurio.value.contentId", bytes(8))], header),
        (b"\xc3\x01" + bytes(8) + framed[5:], [], "not_registry_avro: single-object encoding"),
        (b"\x00" + schema_id.to_bytes(8, "big") + framed[5:], [], f"{unknown} 0, as ids of 8 bytes begin"),
        (framed, [("__key_schema_id", guid), ("value_schema_id", guid)], None),
    ]
    for value, headers, _ in cases:
        topic.produce(value, headers=headers)
    topic.land_well()
    rows = topic.rows()
    assert [row["decode_error"] for row in rows] == [error for _, _, error in cases]
    assert [row["a"] for row in rows] == [None if error else 1 for _, _, error in cases]
    assert_columns_hold_what_bytes_encode(topic, len(cases))
    assert replay.replay(topic.batch_writer(), None).decoded == 0


def test_a_string_that_is_not_utf_8_makes_a_dead_letter(topic: TopicFixture) -> None:
    nested = record("p", city=["null", "string"])
    tags, by_name = {"type": "array", "items": "string"}, {"type": "map", "values": nested | {"name": "q"}}
    schema_id = topic.register(
        record("texts", top="string", place=nested, tags=tags, by_name=by_name, either=["int", "string"])
    )
    value = {"top": "AAAA", "place": {"city": "BBBB"}, "tags": ["x", "CCCC"], "by_name": {"DDDD": {"city": "EEEE"}}}
    value |= {"either": "FFFF"}
    good = topic.encode(schema_id, value)
    for text in (b"AAAA", b"BBBB", b"CCCC", b"DDDD", b"EEEE", b"FFFF"):
        assert text in good
        topic.produce(good.replace(text, b"\xff\xfe\x00\x01"))
    topic.produce(good)
    topic.produce(topic.encode(schema_id, value | {"place": {"city": None}, "tags": [], "by_name": {}, "either": 1}))
    topic.land_well()
    errors = [row["decode_error"] for row in topic.rows()]
    assert errors == [f"decode_failed: schema id {schema_id}"] * 6 + [None, None]
    assert_columns_hold_what_bytes_encode(topic, 8)


def test_unknown_ids_are_looked_for_once(topic: TopicFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch, "MOST_NEW_IDS", 5)
    monkeypatch.setattr(registry, "FIRST_PAUSE", 300.0)
    schema_id = topic.register(record("sale", id="int"))
    missing = schema_id + 10_000
    good = topic.encode(schema_id, {"id": 1})
    bad, *hostile = (b"\x00" + number.to_bytes(4, "big") + b"\x02" for number in range(missing, missing + 31))
    looks, look = [], consumer.schema_ids
    monkeypatch.setattr(consumer, "schema_ids", lambda *given: looks.append(given) or look(*given))
    ingester = topic.ingester()
    later = topic.register(record("sale", id="int", more=["null", "string"]))
    # In the second batch it is known to be unknown: no job that fails, no second reading.
    batches = [(good, bad), (bad, good), (*hostile, topic.encode(later, {"id": 2, "more": "x"}), good)]
    for values, looked, dead_letters in zip(batches, (1, 1, 2), (1, 1, 30), strict=True):
        for value in values:
            topic.produce(value)
        topic.flush()
        (result,) = ingester.catch_up([topic.declaration])
        assert (result.error, len(looks), result.dead_letters) == (None, looked, dead_letters)
    rows = topic.rows()
    assert (rows[-2]["more"], rows[-1]["decode_error"]) == ("x", None)
    assert rows[4]["decode_error"] == f"unknown_schema_id: schema id {missing + 1}"
    assert rows[33]["decode_error"] == f"unknown_schema_id: schema id {missing + 30}, one of too many to ask for"


def test_tombstones_and_foreign_keys_cost_no_row(topic: TopicFixture) -> None:
    value = topic.encode(topic.register(record("sale", id="int")), {"id": 1})
    keys = [b"order-1", None, b"", b"\x00\x00\x01\x02", b"\xff\xfe", b"\x00\x00\x00\x00\x01abc", "k\u00e9y".encode()]
    for key in keys:
        topic.produce(value, key=key)
        topic.produce(None, key=key)
    assert topic.land_well().dead_letters == 0
    rows = topic.rows()
    assert [row["kafka_raw_key"] for row in rows[::2]] == keys
    decoded = ["order-1", None, "", "\x00\x00\x01\x02", None, "\x00\x00\x00\x00\x01abc", "k\u00e9y"]
    assert [row["kafka_key"] for row in rows[::2]] == decoded
    for row in rows[1::2]:
        assert row["kafka_raw_value"] is row["id"] is row["decode_error"] is row["value_schema_id"] is None
    assert_columns_hold_what_bytes_encode(topic, len(rows))
    as_bytes = topic.declaring(key="bytes", table=f"{topic.declaration.table}_bytes")
    as_bytes.land_well()
    assert [row["kafka_key"] for row in as_bytes.rows()[::2]] == keys


def test_avro_keys_are_structs_and_a_foreign_one_is_null(topic: TopicFixture) -> None:
    topic = topic.declaring(key="avro")
    value = topic.encode(topic.register(record("sale", id="int")), {"id": 1})
    key_id = topic.register(record("sale_key", id="int"), side="key")
    wider = topic.register(record("sale_key", id="long", shop=["null", "string"]), side="key")
    first, unknown = topic.encode(key_id, {"id": 7}), 0x7FFFFF00
    short, failed = "not_registry_avro: shorter than 5 bytes", f"decode_failed: schema id {key_id}"
    # What is produced, lands as the key, as its schema's id, and as its error.
    cases: list[tuple[bytes | None, Any, int | None, str | None]] = [
        (first, {"id": 7, "shop": None}, key_id, None),
        (b"plain", None, None, "not_registry_avro: the first byte is not 0"),
        (None, None, None, None),
        (topic.encode(wider, {"id": 2**40, "shop": "s"}), {"id": 2**40, "shop": "s"}, wider, None),
        (b"\x00\x7f\xff\xff\x00\x02", None, unknown, f"unknown_schema_id: schema id {unknown}"),
        (first[:5], None, key_id, failed),
        (b"", None, None, short),
        (b"\x00", None, None, short),
        (first[:5] + b"\xff" * 9, None, key_id, failed),
        (first, None, key_id, "unknown_framing: the schema's id is in a header of the record"),
    ]
    for key, *_ in cases[:-1]:
        topic.produce(value, key=key)
    topic.produce(value, key=first, headers=[("__key_schema_id", b"\x01" + bytes(16))])
    result = topic.land_well()
    rows = topic.rows()
    columns = ("kafka_raw_key", "kafka_key", "key_schema_id", "key_error", "decode_error")
    assert [tuple(row[name] for name in columns) for row in rows] == [(*case, None) for case in cases]
    assert_columns_hold_what_bytes_encode(topic, len(rows))
    (status,) = topic_statuses(topic.settings, [topic.declaration], 10)
    assert (result.key_errors, status.key_errors, result.dead_letters, status.dead_letters) == (7, 7, 0, 0)


def test_skip_keeps_position_and_reason_but_no_byte(topic: TopicFixture) -> None:
    topic = topic.declaring(on_error="skip", key="avro")
    schema_id = topic.register(record("sale", id="int"))
    good = topic.encode(schema_id, {"id": 1})
    key = topic.encode(topic.register(record("k", name="string"), side="key"), {"name": "planted"})
    rng = random.Random(20261122)
    poison = [b"planted", b"\x00\x7f\xff\xff\xffplanted"]
    poison += [good[:HEADER_BYTES] + b"\xff" * 10 + b"planted" + rng.randbytes(length) for length in range(10)]
    for value in (good, None, *poison):
        topic.produce(value, key=key, headers=[("planted", b"planted")])
    assert topic.land_well().dead_letters == len(poison)
    decoded, deleted, *skipped = topic.rows()
    assert [row["decode_error"] for row in (decoded, deleted)] == [None, None]
    assert [row["kafka_raw_key"] for row in (decoded, deleted)] == [key, key]
    assert skipped[0]["decode_error"] == "not_registry_avro: the first byte is not 0"
    assert "planted" not in str(skipped)
    assert {row["kafka_key"] for row in skipped} == {None}
    assert_columns_hold_what_bytes_encode(topic, 2 + len(poison))
    assert topic.declaring(on_error="dead_letter").verify().issue_count > 0
    topic.sql("update {table} set id = 2 where kafka_offset = 2")
    assert topic.verify(decoded=True).issues == ["partition 0: offset 2: another id than in its bytes"]
