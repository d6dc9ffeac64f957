"""Services that are away or misbehave: waited for within bounds, then named with a remedy, and never dead letters."""

import json
import re
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, Message, TopicPartition
from pyspark.sql import SparkSession

from python_common.config.settings import Settings
from python_common.errors import UserError
from python_common.spark.spark_conf import CLASS_ARCHIVE
from python_ingest.bronze.schema_state import SchemaState
from python_ingest.declare.topics import Declaration
from python_ingest.kafka import admin, consumer
from python_ingest.kafka.admin import Broker, passing
from python_ingest.kafka.offset_range import OffsetRange
from python_ingest.kafka.registry import Registry
from python_ingest.landing.schemas import TopicSchemas
from tests.support.services.http_server import Handler, serving
from tests.support.services.schema_registry import SILENCE, registry_answering
from tests.support.topic_fixture import record

NOWHERE = "127.0.0.1:1"


@pytest.mark.skipif(not CLASS_ARCHIVE.exists(), reason="this Java keeps no class archive")
def test_spark_starts_from_the_class_archive(spark: SparkSession) -> None:
    pid = spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid()
    assert str(CLASS_ARCHIVE) in Path(f"/proc/{pid}/maps").read_text()


def registry_at(url: str, offline_settings: Settings, wait: float = 10) -> Registry:
    return Registry(offline_settings.changed(schema_registry_url=url), wait)


REGISTERED = (200, {"schema": '"int"'})
UNKNOWN = (404, {"error_code": 40403, "message": "Schema not found"})


def test_an_outage_of_the_registry_is_waited_for(offline_settings: Settings) -> None:
    outage: list[Any] = [*((status, {"error_code": status}) for status in (500, 502, 503, 429)), SILENCE]
    with registry_answering(*outage, REGISTERED) as (url, asked):
        settings = offline_settings.changed(registry_timeout="1s")
        schema = registry_at(url, settings, 60).schemas([7])[7]
        assert (schema.schema_type, schema.text) == ("AVRO", '"int"')
        assert len(asked) == len(outage) + 1


def test_a_missing_id_is_asked_for_too_often_or_never_again(
    offline_settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Clock:
        now = 0.0

        def monotonic(self) -> float:
            return self.now

        def sleep(self, _: float) -> None: ...

    clock = Clock()
    monkeypatch.setattr("python_ingest.kafka.registry.time", clock)
    with registry_answering(*[UNKNOWN] * 16, REGISTERED) as (url, asked):
        registry = registry_at(url, offline_settings)
        asked_at = []
        while registry.schemas([7]).get(7) is None:
            asked_at += [clock.now] * (len(asked) - len(asked_at))
            clock.now += 1
        assert asked_at == [0, 0, 0, 1, 3, 7, 15, 31, 63, 127, 255, 511, 811, 1111, 1411, 1711]
        assert (registry.missing(), registry.recovered()) == (set(), {7})
        registry.forget_missing({7})
        assert registry.recovered() == set()
        assert registry.recovered([7]) == {7}


def test_a_known_id_of_another_schema_lands(offline_settings: Settings, declaration: Declaration) -> None:
    def registered(*fields: str) -> tuple[int, dict]:
        return 200, {"schema": json.dumps(record("sale", **dict.fromkeys(fields, "int")))}

    def asking(url: str) -> TopicSchemas:
        return TopicSchemas(registry_at(url, offline_settings), declaration)

    with registry_answering(registered("amount", "fee"), subject=f"{declaration.topic}-value") as (url, asked):
        schemas = asking(url)
        state = schemas.resolve_schemas(SchemaState(), [7], ()).state
        noted = schemas.check(state, {})
        assert list(noted) == ["lakehouse.value-schema-fingerprint.7"]
        questions = len(asked)
        assert (schemas.check(state, noted), len(asked)) == ({}, questions)
        # A table without a fingerprint takes the first answer, and one that has it is compared with it.
        assert asking(url).check(state, {}) == noted
        assert asking(url).check(state, noted) == {}
    with registry_answering(registered("fee", "amount")) as (url, _):
        assert asking(url).check(state, {}) != noted
        with pytest.raises(UserError, match=rf"{declaration.topic}: schema id 7 of its values is another schema"):
            asking(url).check(state, noted)
    # What is away, or was emptied, stops no known schema, and is not asked by every batch.
    with registry_answering(UNKNOWN) as (url, asked):
        schemas = asking(url)
        for _ in range(3):
            assert schemas.check(state, noted) == {}
        assert len(asked) == 3
    assert asking(f"http://{NOWHERE}").check(state, noted) == {}


def test_unknown_ids_are_asked_for_in_three_rounds(offline_settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """So a call waits twice, however many ids it names."""
    monkeypatch.setattr("python_ingest.kafka.registry.MOST_MISSING", 30)
    with registry_answering(UNKNOWN) as (url, asked):
        registry = registry_at(url, offline_settings)
        assert registry.schemas(range(40)) == {}
    assert asked == [f"/schemas/ids/{number}" for number in range(40)] * 3
    assert len(registry.missing()) == 30


def test_an_answer_of_another_server_is_an_unknown_id(offline_settings: Settings) -> None:
    with (
        registry_answering((404, {"error_code": 404})) as (url, _),
        pytest.raises(UserError, match="answered 404"),
    ):
        registry_at(url, offline_settings).schemas([7])


@pytest.mark.parametrize(
    ("status", "headers", "message"),
    [
        (403, {}, "answered 403 to GET /schemas/ids/7{}. Give this user the right to read schemas and subjects"),
        (401, {}, "answered 401 to GET /schemas/ids/7{}. Check SCHEMA_REGISTRY_BASIC_AUTH_USER_INFO"),
        (
            301,
            {"Location": "https://me:secret@new.example:8443/api/schemas/ids/7?token=secret"},
            "answered 301 to GET /schemas/ids/7{}. Set SCHEMA_REGISTRY_URL to what it refers to,"
            " https://new.example:8443/api/schemas/ids/7",
        ),
        (307, {"Location": "/elsewhere"}, r"what it refers to, http://127.0.0.1:\d+/elsewhere"),
    ],
)
@pytest.mark.parametrize("path", ["", "/versions"])
def test_an_answer_that_refuses_names_path_and_remedy(
    offline_settings: Settings, path: str, status: int, headers: dict[str, str], message: str
) -> None:
    class Refusing(Handler):
        def do_GET(self) -> None:
            refuses = self.path.partition("?")[0] == f"/schemas/ids/7{path}"
            body = json.dumps({"error_code": 1} if refuses else {"schema": '"int"'}).encode()
            self.answer(status if refuses else 200, body, headers if refuses else None)

    with serving(Refusing) as url, pytest.raises(UserError, match=message.format(path)) as raised:
        registry = registry_at(url, offline_settings)
        registry.subjects(7, registry.schemas([7]))
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_proxy_that_refuses_is_named(
    offline_settings: Settings, monkeypatch: pytest.MonkeyPatch, scheme: str
) -> None:
    class Proxy(Handler):
        def do_GET(self) -> None:
            self.answer(403, b"no")

        do_CONNECT = do_GET

    with serving(Proxy) as proxy:
        monkeypatch.setenv(f"{scheme}_proxy", proxy.replace("//", "//me:secret@"))
        through = f"registry at {scheme}://registry.example through the proxy {proxy.removeprefix('http://')} "
        with pytest.raises(UserError, match=through) as raised:
            registry_at(f"{scheme}://registry.example", offline_settings, 0.1).schemas([7])
        assert "GET /schemas/ids/7" in str(raised.value)
        assert "secret" not in str(raised.value)
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        with registry_answering(REGISTERED) as (url, _):
            assert registry_at(url, offline_settings).schemas([7]).keys() == {7}


def test_the_time_of_an_answer_is_a_variable(offline_settings: Settings) -> None:
    class Slow(Handler):
        def do_GET(self) -> None:
            time.sleep(1)
            self.answer(200, b'{"schema": "\\"int\\""}')

    with serving(Slow) as url:
        impatient = offline_settings.changed(schema_registry_url=url, registry_timeout="200ms")
        with pytest.raises(UserError, match=r"answer GET /schemas/ids/7 \(ReadTimeout\).*LAKEHOUSE_REGISTRY_TIMEOUT"):
            Registry(impatient, 0.1).schemas([7])
        assert Registry(impatient.changed(registry_timeout="60s"), 0.1).schemas([7]).keys() == {7}


def test_a_broker_that_is_away_is_named(offline_settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admin, "REQUEST_SECONDS", 0.5)
    with pytest.raises(UserError, match=r"Kafka at 127.0.0.1:1 does not answer.*KAFKA_BOOTSTRAP_SERVERS"):
        Broker(offline_settings, 0.5).describe("orders")


class Unauthorized(consumer.Consumer):
    """A consumer without rights to its group: such an error belongs to no partition and has no offset."""

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Message]:
        return [Message(error=KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED))]


class Interrupted(consumer.Consumer):
    """A consumer whose partition changes its leader before each record."""

    @staticmethod
    def answers() -> Iterator[Message]:
        for offset in count():
            yield Message(error=KafkaError(KafkaError.NOT_LEADER_FOR_PARTITION))
            yield Message(topic="t", partition=0, offset=offset)

    def assign(self, partitions: list[TopicPartition]) -> None:
        self.left = self.answers()

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Message]:
        return [next(self.left)]


def test_a_change_of_the_leader_ends_a_reading(offline_settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumer, "Consumer", Interrupted)
    records = consumer.read_records(offline_settings, "t", OffsetRange(0, 0, 3), 5)
    assert [record.offset() for record in records] == [0, 1, 2]


def test_an_error_of_the_consumer_itself_is_named(offline_settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumer, "Consumer", Unauthorized)
    with pytest.raises(UserError, match="GROUP_AUTHORIZATION_FAILED"):
        list(consumer.read_records(offline_settings, "t", OffsetRange(0, 0, 5), 5))


def test_what_kafka_calls_passing_is_waited_for(spark: SparkSession) -> None:
    jvm = spark._jvm
    retriable = jvm.java.lang.Class.forName("org.apache.kafka.common.errors.RetriableException")
    # Of a missing topic, of a damaged record, of producers, of groups: no reader gets them, or they do not pass.
    others = re.compile(
        "UNKNOWN_TOPIC_OR_PARTITION|CORRUPT|REPLICAS|TRANSACTIONS|ELECTION|SHARE|UNSTABLE|TOPIC_ID_ERROR"
    )
    codes = {
        str(error.name()): error.code()
        for error in jvm.org.apache.kafka.common.protocol.Errors.values()
        if error.exception() is not None and retriable.isInstance(error.exception())
    }
    assert {"OFFSET_NOT_AVAILABLE", "FENCED_LEADER_EPOCH", "UNKNOWN_LEADER_EPOCH"} < codes.keys()
    assert [name for name, code in codes.items() if not others.search(name) and not passing(KafkaError(code))] == []
