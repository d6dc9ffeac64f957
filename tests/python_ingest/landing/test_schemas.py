"""Which schemas of a topic are compatible: by type and by the versions of their subject, in whatever batch."""

import json
import random
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import Catalog

from python_common.config.settings import Settings
from python_ingest.avro.types import omitted_fields
from python_ingest.bronze import tables
from python_ingest.bronze.schema_state import SchemaState
from python_ingest.declare.spark_types import children, in_spark
from python_ingest.declare.topics import Declaration
from python_ingest.kafka.registry import Registry
from python_ingest.landing.schema_plan import plan_of_file, plans_of_newest
from python_ingest.landing.schemas import TopicSchemas
from tests.support.services.schema_registry import Registrations, registry_of
from tests.support.topic_fixture import record

Outcome = tuple[dict[int, str | None], dict[str, str]]


@dataclass
class Topic:
    """What a registry has of a topic, and how its batches are resolved."""

    settings: Settings
    declaration: Declaration
    registrations: Registrations

    def outcome(self, batches: list[list[int]], restarts: bool = False) -> Outcome:
        """Return what is wrong with each schema id, None for what lands, and the types of the columns."""
        state, reasons = SchemaState(), dict[int, str | None]()

        def client() -> TopicSchemas:
            return TopicSchemas(Registry(self.settings, 10), self.declaration)

        schemas = client()
        for batch in batches:
            decoders = schemas.resolve_schemas(state, batch, (), 100)
            state = decoders.state
            for schema_id in batch:
                reasons[schema_id] = decoders.value.rejected.get(schema_id)
                assert reasons[schema_id] or schema_id in decoders.value.writers
            if restarts:
                schemas = client()
        return reasons, {name: in_spark(column) for name, column in children(state.columns).items()}

    def state(self, schema_ids: list[int]) -> SchemaState:
        """Return the state of a table that knows these."""
        return (
            TopicSchemas(Registry(self.settings, 10), self.declaration).resolve_schemas(SchemaState(), schema_ids).state
        )


@pytest.fixture
def registrations() -> Registrations:
    return Registrations()


@pytest.fixture
def of_topic(offline_settings: Settings, declaration: Declaration, registrations: Registrations) -> Any:
    with registry_of(registrations) as url:
        settings = offline_settings.changed(schema_registry_url=url)
        yield lambda subject="topic": Topic(settings, replace(declaration, subject=subject), registrations)


def versions_of_a_type(rng: random.Random, name: str, with_misfits: bool) -> list[tuple[Any, bool]]:
    """Return versions of a record, and whether each fits the ones before. Field names have a type of their own."""
    fields: dict[str, tuple[str, dict[str, Any]]] = {"id": (rng.choice(["int", "long"]), {})}
    fields |= {f"n{rng.randrange(4)}": ("int", {}), f"s{rng.randrange(4)}": ("string", {})}
    versions = [(schema_of(name, fields), True)]
    for _ in range(rng.randint(0, 4)):
        step = rng.choice(["add", "widen", *(["narrow", "rename", "alias"] if with_misfits else [])])
        wide = [field for field, (kind, _) in fields.items() if kind == "long"]
        changed = dict(fields)
        match step:
            case "add":
                changed[f"n{rng.randrange(4, 9)}"] = "int", {"default": 0}
            case "widen":
                changed["id"] = "long", {}
            case "narrow" if wide:
                changed[rng.choice(wide)] = "int", {}
            case "rename":
                [old] = [field for field in fields if field[0] == "s"]
                del changed[old]
                changed[f"s{rng.randrange(10, 99)}"] = "string", {}
            case "alias":
                [old] = [field for field in fields if field[0] == "s"]
                del changed[old]
                changed[f"s{rng.randrange(100, 999)}"] = "string", {"aliases": [old]}
        fits = step not in ("rename",) and not (step == "narrow" and wide)
        if changed != fields:
            versions.append((schema_of(name, changed), fits))
        fields = changed if fits else fields
    return versions


def schema_of(name: str, fields: dict[str, tuple[str, dict[str, Any]]]) -> Any:
    return record(name) | {"fields": [{"name": field, "type": kind, **more} for field, (kind, more) in fields.items()]}


def in_random_batches(rng: random.Random, stream: list[int]) -> list[list[int]]:
    cuts = sorted(rng.sample(range(1, len(stream)), rng.randint(1, min(4, len(stream) - 1))))
    return [stream[start:end] for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)]


@pytest.mark.parametrize(("naming", "with_misfits"), [("topic", True), ("record", False), ("topic_record", True)])
def test_batches_restarts_and_replays_change_no_outcome(of_topic: Any, naming: str, with_misfits: bool) -> None:
    rng = random.Random(f"{naming} {with_misfits}")
    misfits = 0
    for case in range(4):
        topic = of_topic(naming)
        numbers = iter(rng.sample(range(1, 10_000), 40))
        expected: dict[int, bool] = {}
        streams = []
        topic.registrations.schemas.clear()
        topic.registrations.subjects.clear()
        for number in range(3):
            ids = []
            for schema, fits in versions_of_a_type(rng, f"Type{case}{number}", with_misfits):
                prefix = topic.declaration.topic
                subject = {"topic": f"{prefix}-value", "record": schema["name"]}.get(
                    naming, f"{prefix}-{schema['name']}"
                )
                schema_id = next(numbers)
                topic.registrations.register(schema_id, schema, subject)
                expected[schema_id] = fits
                ids.append(schema_id)
            streams.append(ids)
        # Types in any order; where a version may not fit, the versions of each begin in their order.
        stream = [ids.pop(0) for ids in rng.sample([ids for ids in streams for _ in ids], len(expected))]
        if not with_misfits:
            rng.shuffle(stream)
        stream += rng.choices(stream, k=10)
        misfits += len(expected) - sum(expected.values())
        outcome = topic.outcome([stream])
        assert {schema_id: reason is None for schema_id, reason in outcome[0].items()} == expected
        for restarts in (False, True):
            assert topic.outcome(in_random_batches(rng, stream), restarts) == outcome
        assert topic.outcome([*in_random_batches(rng, stream), stream], restarts=True) == outcome
    assert bool(misfits) == with_misfits


def test_an_id_that_was_registered_elsewhere_first_is_no_older_version(of_topic: Any) -> None:
    topic = of_topic()
    subject = f"{topic.declaration.topic}-value"
    topic.registrations.register(9, record("sale", a="int"), subject)
    topic.registrations.register(5, record("sale", a="long"), "elsewhere-value", subject)
    for batches in ([[9, 5, 9]], [[9], [5], [9]], [[5], [9]]):
        assert topic.outcome(batches) == (dict.fromkeys((9, 5)), {"a": "bigint"})
    # In the order of the subject it is a narrower type.
    topic.registrations.register(3, record("sale", a="int", b=["null", "int"]), subject)
    reasons, _ = topic.outcome([[3, 5, 9]])
    assert reasons == {9: None, 5: None, 3: "incompatible_schema: schema id 3, a: long cannot become int"}


def test_versions_of_a_record_that_may_be_null_are_compared(of_topic: Any) -> None:
    topic = of_topic()
    for schema_id, kind in ((1, "long"), (2, "int")):
        schema = ["null", record("sale", **{f"new{schema_id}": ["null", "int"]}, id=kind)]
        topic.registrations.register(schema_id, schema, f"{topic.declaration.topic}-value")
    reasons, _ = topic.outcome([[1, 2]])
    assert reasons[1] is None
    assert "long cannot become int" in str(reasons[2])


def test_a_schema_of_several_subjects_is_good_for_each_of_their_topics(of_topic: Any) -> None:
    topic = of_topic()
    own = f"{topic.declaration.topic}-value"
    topic.registrations.register(7, record("sale", id="int"), own, "a", "b", "c", "d")
    topic.registrations.register(8, record("k", id="int"), f"{topic.declaration.topic}-key")
    # A value may not be written with a key's schema.
    reasons, _ = topic.outcome([[7, 8]])
    assert reasons == {7: None, 8: f"foreign_schema: schema id 8 belongs to {topic.declaration.topic}-key"}
    assert of_topic(("d",)).outcome([[7]])[0] == {7: None}
    assert of_topic(("x",)).outcome([[7]])[0] == {7: "foreign_schema: schema id 7 belongs to a, b, c and 2 more"}


@pytest.mark.parametrize("naming", ["record", "topic_record"])
def test_subjects_may_be_named_after_records(of_topic: Any, naming: str) -> None:
    topic = of_topic(naming)
    name = topic.declaration.topic
    sale = record("sale", id="int") | {"namespace": "shop.events"}
    topic.registrations.register(
        1, sale, f"{name}-shop.events.sale" if naming == "topic_record" else "shop.events.sale"
    )
    topic.registrations.register(2, sale | {"name": "other"}, f"{name}-value")
    reasons, _ = topic.outcome([[1, 2]])
    assert reasons == {1: None, 2: f"foreign_schema: schema id 2 belongs to {name}-value"}


def test_an_alias_of_one_type_moves_no_field_of_another(of_topic: Any) -> None:
    topic = of_topic("topic_record")
    placed = record("Placed") | {"fields": [{"name": "total", "type": "int", "aliases": ["amount"]}]}
    topic.registrations.register(1, placed, f"{topic.declaration.topic}-Placed")
    topic.registrations.register(2, record("Shipped", amount="int"), f"{topic.declaration.topic}-Shipped")
    assert topic.outcome([[1], [2]]) == (dict.fromkeys((1, 2)), {"total": "int", "amount": "int"})


def test_a_known_schema_that_the_registry_lost_keeps_its_names(of_topic: Any) -> None:
    topic = of_topic()
    subject = f"{topic.declaration.topic}-value"
    topic.registrations.register(1, record("sale", a="int"), subject)
    state = topic.state([1])
    del topic.registrations.schemas[1]
    renamed = record("sale") | {"fields": [{"name": "b", "type": "int", "aliases": ["a"]}]}
    topic.registrations.register(2, renamed, subject)
    later = TopicSchemas(Registry(topic.settings, 10), topic.declaration)
    assert [*children(later.resolve_schemas(state, [2]).state.columns)] == ["a"]


@pytest.mark.parametrize("naming", ["topic", "record", "list"])
def test_no_number_of_versions_is_too_many_for_their_topic(of_topic: Any, naming: str) -> None:
    """Whereas ids that are none of the topic's are asked for up to the limit."""
    topic = of_topic(("moved-value",) if naming == "list" else naming)
    prefix = topic.declaration.topic
    for number in range(120):
        # Greater than the ids that only noise names.
        name = f"R{number % 3}"
        subject = {"topic": f"{prefix}-value", "record": name, "list": "moved-value"}[naming]
        schema = record(name, **{f"f{field}": ["null", "int"] for field in range(number // 3)})
        topic.registrations.register(5_000 + number, schema | {"doc": str(number)}, subject)
    own = [*topic.registrations.schemas]
    # Subjects named after records are those of the ids that are asked for first.
    first = own[:3] if naming == "record" else []
    counts = Counter([*range(1, 4_000), *own, *first])
    schemas = TopicSchemas(Registry(topic.settings, 10), topic.declaration)
    decoders = schemas.resolve_schemas(SchemaState(), counts, (), 20)
    assert (len(decoders.value.unknown), decoders.value.too_many) == (20 - len(first), True)
    assert {*decoders.value.writers} == {*own}
    # Some registries refuse a path with an empty name.
    assert not [path for path in topic.registrations.asked if "//" in path]


@pytest.mark.parametrize("base", ["/contexts/.team", "/contexts/:.team:", "/apis/contexts/.team", ""])
def test_a_subject_of_the_urls_context_is_the_topics(
    offline_settings: Settings, declaration: Declaration, base: str
) -> None:
    registrations = Registrations(context=":.team:" if base else ":.:")
    registrations.register(7, record("sale", a="int"), f"{declaration.topic}-value")
    registrations.register(8, record("sale", b="int"), "other-value")
    with registry_of(registrations, base) as url:
        settings = offline_settings.changed(schema_registry_url=url)
        for subject in ("topic", (f"{registrations.context}{declaration.topic}-value",)):
            topic = Topic(settings, replace(declaration, subject=subject), registrations)
            reasons, _ = topic.outcome([[7, 8]])
            assert reasons == {7: None, 8: "foreign_schema: schema id 8 belongs to other-value"}


def test_a_subject_of_another_context_is_not_the_topics(offline_settings: Settings, declaration: Declaration) -> None:
    registrations = Registrations(context=":.theirs:")
    registrations.register(7, record("sale", a="int"), f"{declaration.topic}-value")
    with registry_of(registrations, "/contexts/.team") as url:
        topic = Topic(offline_settings.changed(schema_registry_url=url), declaration, registrations)
        reason = f"foreign_schema: schema id 7 belongs to :.theirs:{declaration.topic}-value"
        assert topic.outcome([[7]])[0] == {7: reason}


@pytest.mark.parametrize("spellings", [("Status", "status"), ("status", "STATUS"), ("sTatus", "Status")])
@pytest.mark.parametrize("nested", [False, True])
def test_a_field_renamed_by_case_keeps_its_column(of_topic: Any, spellings: tuple[str, str], nested: bool) -> None:
    topic = of_topic()
    subject = f"{topic.declaration.topic}-value"
    first, second = spellings
    for schema_id, name in ((1, first), (2, second)):
        schema = record("sale", **{"id" if name == first else "ID": "int", name: "string"})
        topic.registrations.register(schema_id, record("outer", below=schema) if nested else schema, subject)
    columns = {"below": f"struct<`id`: int, `{first}`: string>"} if nested else {"id": "int", first: "string"}
    for batches in ([[1, 2]], [[1], [2], [1]]):
        assert topic.outcome(batches) == ({1: None, 2: None}, columns)
    topic.registrations.register(3, record("sale", **{second: "int"}), subject)
    if not nested:
        reason = f"incompatible_schema: schema id 3, {first}: string cannot become int"
        assert topic.outcome([[1, 2, 3]])[0][3] == reason


@pytest.mark.parametrize(
    ("versions", "columns"),
    [
        ([{"kafka_offset": "int", "value_kafka_offset": "string"}], {"value_kafka_offset": "string"}),
        ([{"value_kafka_offset": "string"}, {"kafka_offset": "int"}], {"value_kafka_offset": "string"}),
        ([{"kafka_offset": "int"}, {"value_kafka_offset": "string"}], {"value_kafka_offset": "int"}),
        ([{"kafka_offset": "int"}, {"KAFKA_OFFSET": "int"}], {"value_kafka_offset": "int"}),
    ],
)
def test_a_field_whose_column_another_has_costs_no_record(
    of_topic: Any, versions: list[dict[str, str]], columns: dict[str, str]
) -> None:
    topic = of_topic()
    for number, fields in enumerate(versions):
        topic.registrations.register(number, record("sale", k="int", **fields), f"{topic.declaration.topic}-value")
    ids = [*range(len(versions))]
    assert topic.outcome([ids]) == (dict.fromkeys(ids), {"k": "int", **columns})
    omitted = [path for writer in topic.state(ids).writers["value"].values() for path, _ in omitted_fields(writer)]
    fields_of_all = [field for fields in versions for field in fields]
    assert len(omitted) == len({field.lower() for field in fields_of_all}) - 1


def test_a_schema_that_the_parser_refuses_costs_its_own_records(of_topic: Any) -> None:
    topic = of_topic()
    for schema_id, fields in ((1, {}), (2, {"b": ["null", "int"]}), (3, {"c": ["null", "int"]})):
        topic.registrations.register(schema_id, record("sale", a="int", **fields), f"{topic.declaration.topic}-value")

    def refusal(writer: str) -> str | None:
        return "no b" if '"b"' in writer else None

    reason = {2: "incompatible_schema: schema id 2, no b"}
    for asked, columns in ((refusal, ["a", "c"]), (lambda _: None, ["a", "b", "c"])):
        schemas = TopicSchemas(Registry(topic.settings, 10), topic.declaration, asked)
        decoders = schemas.resolve_schemas(SchemaState(), [1, 2, 3])
        assert [*children(decoders.state.columns)] == columns
        # A table may have got it from a release that did not ask.
        again = TopicSchemas(Registry(topic.settings, 10), topic.declaration, refusal).resolve_schemas(decoders.state)
        assert {*again.value.writers} == {1, 3}
        assert decoders.value.rejected == (reason if asked is refusal else {})
    assert again.value.rejected == reason


def test_a_plan_compares_a_schema_with_the_versions_of_its_type(
    of_topic: Any, catalog: Catalog, tmp_path: Path
) -> None:
    topic = of_topic()
    subject = f"{topic.declaration.topic}-value"
    topic.registrations.register(9, record("Wide", id="int"), subject)
    topic.registrations.register(5, record("Wide", id="long"), subject)
    registry = Registry(topic.settings, 10)
    declaration = replace(topic.declaration, schema="bronze")
    table = tables.create(catalog, declaration)
    # Version 2 landed first, under a lower id.
    table = tables.evolve(table, declaration, topic.state([5]))
    (planned,) = plans_of_newest(registry, table, declaration)
    assert (planned.schema_id, planned.refused) == (5, None)
    for name, refused in (("Narrow", None), ("Wide", "id: long cannot become int")):
        proposed = tmp_path / f"{name}.avsc"
        proposed.write_text(json.dumps(record(name, id="int")))
        assert plan_of_file(proposed, table, declaration, registry).refused == refused


def test_a_plan_moves_no_field_to_a_column_of_another_type(of_topic: Any, catalog: Catalog, tmp_path: Path) -> None:
    topic = of_topic("topic_record")
    placed = record("Placed") | {"fields": [{"name": "total", "type": "int", "aliases": ["amount"]}]}
    topic.registrations.register(1, placed, f"{topic.declaration.topic}-Placed")
    declaration = replace(topic.declaration, schema="bronze")
    table = tables.evolve(tables.create(catalog, declaration), declaration, topic.state([1]))
    proposed = tmp_path / "shipped.avsc"
    proposed.write_text(json.dumps(record("Shipped", amount="int")))
    plan = plan_of_file(proposed, table, declaration, Registry(topic.settings, 10))
    assert [*plan.added] == ["amount"]
