"""Which schemas of a topic are compatible: by type and by the versions of their subject, in whatever batch."""

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from python_common.config.environment import PROJECT_ROOT
from python_common.config.settings import Settings
from python_ingest.bronze.schema_state import SchemaState
from python_ingest.declare.spark_types import children
from python_ingest.declare.topics import Declaration
from python_ingest.kafka.registry import Registry
from python_ingest.landing.schemas import TopicSchemas
from python_ingest.maintenance import replay
from python_ingest.maintenance.replay import Replayed
from tests.support import type_mapping
from tests.support.avro_versions import aliased
from tests.support.registered_topic import RegisteredTopic
from tests.support.services.http_server import Handler, serving
from tests.support.services.schema_registry import Registrations, registry_of
from tests.support.topic_fixture import TopicFixture, assert_exactly_once, record

Registered = Callable[..., RegisteredTopic]


def sale(**fields: Any) -> Any:
    return record("sale", **fields)


def other(**fields: Any) -> Any:
    return record("other", **fields)


INT = ["null", "int"]
NARROWER = "id: long cannot become int"
# The column of a field `kafka_offset`, and of one of its own name.
NUMBER, TEXT = {"value_kafka_offset": "int"}, {"value_kafka_offset": "string"}


@pytest.mark.parametrize(
    ("versions", "refused", "columns"),
    [
        # Of two types, which share their columns: each version is compared with those of its type that fit.
        (
            [
                sale(id="int", text="string"),
                other(id="int", text="string", more=INT),
                sale(id="long", text="string"),
                sale(id="int", text="string", less=INT),
                other(id="int", text="string"),
                sale(id="long", renamed="string"),
                other(id="long", more=INT),
                aliased(sale(id="long", aliased="string"), aliased=["text"]),
                other(id="int", text="string"),
            ],
            {3: "id: long cannot become int", 5: "text: renamed to renamed without an alias", 8: NARROWER},
            {"id": "bigint", "text": "string", "more": "int"},
        ),
        # A record that may be NULL has versions, too.
        ([["null", sale(new=INT, id="long")], ["null", sale(id="int")]], {1: NARROWER}, {"new": "int", "id": "bigint"}),
        # A field renamed by case keeps its column.
        ([sale(id="int", Status="int"), sale(ID="int", status="int")], {}, {"id": "int", "Status": "int"}),
        ([sale(status="int"), sale(STATUS="int")], {}, {"status": "int"}),
        ([sale(sTatus="int"), sale(Status="int")], {}, {"sTatus": "int"}),
        ([record("r", x=sale(Id="int")), record("r", x=sale(iD="int"))], {}, {"x": "struct<`Id`: int>"}),
        ([sale(a="string"), sale(A="int")], {1: "a: string cannot become int"}, {"a": "string"}),
        # A field whose column another has costs no record.
        ([sale(kafka_offset="int", value_kafka_offset="string")], {}, TEXT),
        ([sale(k=INT, value_kafka_offset="string"), sale(k=INT, kafka_offset="int")], {}, {"k": "int", **TEXT}),
        ([sale(k=INT, kafka_offset="int"), sale(k=INT, value_kafka_offset="string")], {}, {"k": "int", **NUMBER}),
        ([sale(kafka_offset="int"), sale(KAFKA_OFFSET="long")], {}, {"value_kafka_offset": "bigint"}),
    ],
)
def test_batches_restarts_and_replays_change_no_outcome(
    registered: Registered, versions: list[Any], refused: dict[int, str], columns: dict[str, str]
) -> None:
    topic = registered()
    # A greater id is not a later version.
    ids = [90 - number for number in range(len(versions))]
    for schema_id, version in zip(ids, versions, strict=True):
        topic.register(schema_id, version)
    reasons: dict[int, str | None] = dict.fromkeys(ids)
    for number, reason in refused.items():
        reasons[ids[number]] = f"incompatible_schema: schema id {ids[number]}, {reason}"
    one_by_one = [[schema_id] for schema_id in ids]
    for batches in ([ids], one_by_one, [ids[:2], ids[1:]], [*one_by_one, ids[::-1], ids]):
        for restarts in (False, True):
            assert topic.outcome(batches, restarts) == (reasons, columns)


def test_each_change_that_does_not_fit_is_refused_as_documented(registered: Registered) -> None:
    """A version per row of the table in docs/type-mapping.md, which changes one field."""
    topic, refused = registered(), type_mapping.table("change of field `x`")
    before, after = type_mapping.columns(refused, 1), type_mapping.columns(refused, 2)
    topic.register(1, sale(**before))
    reasons: dict[int, str | None] = {1: None}
    for schema_id, (name, row) in enumerate(zip(after, refused, strict=True), 2):
        topic.register(schema_id, sale(**before | {name: after[name]}))
        reasons[schema_id] = f"incompatible_schema: schema id {schema_id}, {re.sub('^x', name, row[3])}"
    _, types = topic.outcome([[1]])
    assert topic.outcome([[1], [*reasons][1:]]) == (reasons, types)


@pytest.mark.parametrize(
    ("naming", "own", "others", "listed"),
    [
        # A value may not be written with a key's schema.
        ("topic", ["shop-value", "a"], ["shop-key"], "shop-key"),
        (("b",), ["a", "b"], [*"acdef"], "a, c, d and 2 more"),
        ("record", ["till.events.sale"], ["shop-value"], "shop-value"),
        ("topic_record", ["shop-till.events.sale"], ["shop-value"], "shop-value"),
    ],
)
def test_a_schema_is_of_each_topic_that_has_one_of_its_subjects(
    registered: Registered, naming: Any, own: list[str], others: list[str], listed: str
) -> None:
    topic = registered(subject=naming)
    topic.register(7, sale(id="int") | {"namespace": "till.events"}, *own)
    topic.register(8, record("other", id="string", more="int"), *others)
    foreign = f"foreign_schema: schema id 8 belongs to {listed}"
    for batches in ([[7, 8]], [[8], [7]]):
        assert topic.outcome(batches) == ({7: None, 8: foreign}, {"id": "int"})


def test_an_alias_of_one_type_moves_no_field_of_another(registered: Registered) -> None:
    topic = registered(subject="topic_record")
    topic.register(1, aliased(record("Placed", total="int"), total=["amount"]), "shop-Placed")
    topic.register(2, record("Shipped", amount="int"), "shop-Shipped")
    assert topic.outcome([[1], [2]]) == (dict.fromkeys((1, 2)), {"total": "int", "amount": "int"})


def test_an_id_registered_elsewhere_first_is_no_older_version(registered: Registered) -> None:
    topic = registered()
    topic.register(9, sale(a="int"))
    topic.register(5, sale(a="long"), "elsewhere-value", "shop-value")
    for batches in ([[9, 5, 9]], [[9], [5], [9]], [[5], [9]]):
        assert topic.outcome(batches) == (dict.fromkeys((9, 5)), {"a": "bigint"})
    # In the order of the subject it is a narrower type.
    topic.register(3, sale(a="int", b=["null", "int"]))
    reasons, _ = topic.outcome([[3, 5, 9]])
    assert reasons == {9: None, 5: None, 3: "incompatible_schema: schema id 3, a: long cannot become int"}


def test_a_schema_that_the_registry_lost_keeps_its_names(registered: Registered) -> None:
    topic = registered()
    topic.register(1, sale(a="int"))
    state = topic.state([1])
    del topic.registrations.schemas[1]
    topic.register(2, aliased(sale(b="int"), b=["a"]))
    assert [*children(topic.schemas().resolve_schemas(state, [2]).state.columns)] == ["a"]


@pytest.mark.parametrize("naming", ["topic", "record", ("moved-value",)])
def test_no_number_of_versions_is_too_many_for_their_topic(registered: Registered, naming: Any) -> None:
    """Whereas ids that are none of the topic's are asked for up to the limit."""
    topic = registered(subject=naming)
    for number in range(120):
        name = f"R{number % 3}"
        schema = record(name, **{f"f{field}": ["null", "int"] for field in range(number // 3)})
        # Greater than the ids that only noise names.
        topic.register(5_000 + number, schema | {"doc": str(number)}, *topic.declaration.subjects("value", name))
    own = [*topic.registrations.schemas]
    # Subjects named after records are those of the ids that are asked for first.
    first = own[:3] if naming == "record" else []
    counts = Counter([*range(1, 4_000), *own, *first])
    decoders = topic.schemas().resolve_schemas(SchemaState(), counts, (), 20)
    assert (len(decoders.value.unknown), decoders.value.too_many) == (20 - len(first), True)
    assert {*decoders.value.writers} == {*own}
    # Some registries refuse a path with an empty name.
    assert not [path for path in topic.registrations.asked if "//" in path]


@pytest.mark.parametrize(
    ("base", "context", "foreign"),
    [
        *(
            (base, ":.team:", {8: "other-value"})
            for base in ("/contexts/.team", "/contexts/:.team:", "/apis/contexts/.team")
        ),
        ("", ":.:", {8: "other-value"}),
        ("/contexts/.team", ":.theirs:", {7: ":.theirs:shop-value", 8: ":.theirs:other-value"}),
    ],
)
def test_only_a_subject_of_the_urls_context_is_the_topics(
    offline_settings: Settings, base: str, context: str, foreign: dict[int, str]
) -> None:
    registrations = Registrations(context=context)
    with registry_of(registrations, base) as url:
        settings = offline_settings.changed(schema_registry_url=url)
        topic = RegisteredTopic(settings, Declaration("shop", "bronze", "shop"), registrations)
        topic.register(7, sale(a="int"))
        topic.register(8, sale(b="int"), "other-value")
        reasons = {
            number: f"foreign_schema: schema id {number} belongs to {subject}" for number, subject in foreign.items()
        }
        assert topic.outcome([[7, 8]])[0] == {7: None} | reasons
        topic.declaration = replace(topic.declaration, subject=(f"{context}shop-value",))
        assert topic.outcome([[7, 8]])[0] == {7: None, 8: reasons[8]}


def test_a_schema_that_the_parser_refuses_costs_its_own_records(registered: Registered) -> None:
    topic = registered()
    for schema_id, fields in ((1, {}), (2, {"b": ["null", "int"]}), (3, {"c": ["null", "int"]})):
        topic.register(schema_id, sale(a="int", **fields))

    def refusal(writer: str) -> str | None:
        return "no b" if '"b"' in writer else None

    reason = {2: "incompatible_schema: schema id 2, no b"}
    for asked, columns in ((refusal, ["a", "c"]), (lambda _: None, ["a", "b", "c"])):
        decoders = topic.schemas(refusal=asked).resolve_schemas(SchemaState(), [1, 2, 3])
        assert [*children(decoders.state.columns)] == columns
        assert decoders.value.rejected == (reason if asked is refusal else {})
        # A table may have got it from a release that did not ask.
        again = topic.schemas(refusal=refusal).resolve_schemas(decoders.state)
        assert {*again.value.writers} == {1, 3}
    assert again.value.rejected == reason


class OldRegistry(Handler):
    """A registry that returns schemas by id, and ids by subject and schema, but not the subjects of an id."""

    def do_GET(self) -> None:
        self.answer(*((200, b'{"schema": "\\"int\\""}') if self.path.count("/") == 3 else (404, b"Not Found")))

    def do_POST(self) -> None:
        self.body()
        known = self.path.startswith("/subjects/mine-value?")
        answer = b'{"subject": "mine-value", "id": 7, "version": 1, "schema": "\\"int\\""}'
        self.answer(*((200, answer) if known else (404, b'{"error_code": 40401, "message": "Subject not found"}')))


def test_a_registry_without_lists_is_asked_for_allowed_subjects(offline_settings: Settings) -> None:
    with serving(OldRegistry) as url:
        settings = offline_settings.changed(schema_registry_url=url)
        foreign = "foreign_schema: schema id 7 is not registered under other-value"
        for topic, reason in (("mine", None), ("other", foreign)):
            schemas = TopicSchemas(Registry(settings, 10), Declaration(topic, "bronze", topic))
            assert schemas.resolve_schemas(SchemaState(), {7}).value.rejected.get(7) == reason


@pytest.mark.slow
def test_a_spoiled_table_is_repaired_as_in_the_docs(topic: TopicFixture) -> None:
    foreign_subject = f"{topic.name}-trades-value"
    trade = record(f"trade_{topic.declaration.table}", id="string", symbol="string")
    schema_id = topic.register_under(foreign_subject, trade)
    topic.produce(topic.encode(schema_id, {"id": "x", "symbol": "s"}))
    # As it was before subjects were asked for: the foreign schema came first and decided the columns.
    topic.declaring(subject=(foreign_subject,)).land_well()
    # Under a separate name: the registry gives equal schemas of several subjects one id.
    good_fields = topic.register(record(f"sale_{topic.declaration.table}", id="int", note="string"))
    topic.produce(topic.encode(good_fields, {"id": 1, "note": "n"}))
    assert topic.land_well().dead_letters == 1
    text = (PROJECT_ROOT / "docs" / "operations.md").read_text()
    section = text.split("## A table that a foreign schema spoiled")[1].split("\n## ")[0]
    statements = re.search(r"```sql\n(.*?)```", section, re.DOTALL)
    assert statements is not None
    own_names = {
        "lake.bronze.shiftleft_public_orders": "{table}",
        "symbol, account": "id, symbol",
        "stock_trades": f"{topic.name}-trades",
        "7": str(schema_id),
    }
    commands = re.sub("|".join(own_names), lambda match: own_names[match[0]], statements[1])
    for command in filter(str.strip, commands.split(";\n")):
        topic.sql(command)
    assert replay.replay(topic.batch_writer(), None) == Replayed(2, 1)
    assert [row["decode_error"] for row in topic.rows()] == [
        f"foreign_schema: schema id {schema_id} belongs to {foreign_subject}",
        None,
    ]
    assert [(row["id"], row["note"]) for row in topic.rows()] == [(None, None), (1, "n")]
    assert [field.name for field in SchemaState.of(topic.table()).columns.fields] == ["id", "note"]
    topic.produce(topic.encode(good_fields, {"id": 2, "note": "m"}))
    assert topic.land_well().dead_letters == 0
    assert_exactly_once(topic, 3)
