"""Schemas of other topics: a dead letter that touches neither table nor neighbours, until the declaration says more."""

import random
import re
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest

from python_common.config.environment import PROJECT_ROOT
from python_common.config.settings import Settings
from python_ingest.avro.expanded_schema import full_name
from python_ingest.bronze.schema_state import SchemaState
from python_ingest.declare.topics import Declaration
from python_ingest.kafka.registry import Registry
from python_ingest.landing.schemas import TopicSchemas
from python_ingest.maintenance import replay
from python_ingest.maintenance.replay import Replayed
from tests.python_ingest.avro.test_ingest_schemas import a_version
from tests.support.lab import Lab, assert_exactly_once, record


def declaring(lab: Lab, **changes: Any) -> Lab:
    return replace(lab, declaration=replace(lab.declaration, **changes))


def sale(lab: Lab) -> dict[str, Any]:
    # Of a name of its own: the registry gives equal schemas of several subjects one id.
    return record(f"sale_{lab.declaration.table}", id="int", note="string")


def errors(lab: Lab) -> list[str | None]:
    return [row["decode_error"] for row in lab.rows()]


def test_neighbours_of_hostile_schemas_are_untouched_and_each_is_named(lab: Lab) -> None:
    rng = random.Random(20261122)
    own = lab.register(sale(lab))
    # Fields of the same names with other types, fields of other names, random ones, and none at all.
    hostile = [
        record("trade", id="string", note="int", symbol="string"),
        record("empty"),
        record("wide", id="long", note="string", gift=["null", "string"]),
        *(a_version(rng) | {"name": f"random_{number}"} for number in range(5)),
    ]
    foreign = {}
    for number, schema in enumerate(hostile):
        subject = f"{lab.topic}-other-{number}"
        foreign[lab.register_under(subject, schema | {"namespace": lab.declaration.table})] = subject
    bodies = [rng.randbytes(length) for length in (0, 1, 20)]
    expected: list[str | None] = []
    for index, (schema_id, subject) in enumerate(foreign.items()):
        lab.produce(b"\x00" + schema_id.to_bytes(4, "big") + rng.choice(bodies))
        lab.produce(lab.encode(own, {"id": index, "note": "good"}))
        expected += [f"foreign_schema: schema id {schema_id} belongs to {subject}", None]
    assert lab.land_well().dead_letters == len(foreign)
    assert errors(lab) == expected
    assert [row["id"] for row in lab.rows()[1::2]] == list(range(len(foreign)))
    assert list(SchemaState.of(lab.table()).writers["value"]) == [own]
    assert [field.name for field in SchemaState.of(lab.table()).columns.fields] == ["id", "note"]
    assert_exactly_once(lab, 2 * len(foreign))


def test_a_replay_lands_a_foreign_schema_once_the_declaration_names_its_subject(lab: Lab) -> None:
    subject = f"{lab.topic}-moved"
    lab.produce(lab.encode(lab.register(sale(lab)), {"id": 1, "note": "own"}))
    moved = sale(lab) | {"fields": [*sale(lab)["fields"], {"name": "more", "type": ["null", "int"]}]}
    lab.produce(lab.encode(lab.register_under(subject, moved), {"id": 2, "note": "moved", "more": 7}))
    lab.land_well()
    assert replay.replay(lab.batch_writer(), None) == Replayed(1, 0)
    corrected = declaring(lab, subject=(f"{lab.topic}-value", subject))
    assert replay.replay(corrected.batch_writer(), "foreign_schema") == Replayed(1, 1)
    assert [(row["id"], row["more"]) for row in lab.rows()] == [(1, None), (2, 7)]


def test_a_schema_of_several_subjects_is_good_for_each_of_their_topics(lab: Lab) -> None:
    lab = declaring(lab, key="avro")
    shared = sale(lab)
    schema_id = lab.register(shared)
    for subject in ("a", "b", "c", "d"):
        assert lab.register_under(f"{lab.topic}-{subject}", shared) == schema_id
    key_id = lab.register(record(f"k_{lab.declaration.table}", id="int"), side="key")
    value, key = lab.encode(schema_id, {"id": 1, "note": "n"}), lab.encode(key_id, {"id": 7})
    lab.produce(value, key=key)
    # A key may not be written with a value's schema, nor a value with a key's.
    lab.produce(key, key=value)
    assert lab.land_well().dead_letters == 1
    assert [row["kafka_key"] for row in lab.rows()] == [{"id": 7}, None]
    assert errors(lab) == [None, f"foreign_schema: schema id {key_id} belongs to {lab.topic}-key"]
    elsewhere = Lab(
        lab.settings, lab.spark, replace(lab.declaration, table=f"{lab.declaration.table}_x", subject=("x",))
    )
    elsewhere.land_well()
    assert errors(elsewhere)[0] == (
        f"foreign_schema: schema id {schema_id} belongs to {lab.topic}-a, {lab.topic}-b, {lab.topic}-c and 2 more"
    )


@pytest.mark.parametrize("strategy", ["record", "topic_record"])
def test_subjects_may_be_named_after_records(lab: Lab, strategy: str) -> None:
    lab = declaring(lab, subject=strategy)
    prefix = f"{lab.topic}-" if strategy == "topic_record" else ""
    event = sale(lab) | {"namespace": "shop.events"}
    name = f"shop.events.{event['name']}"
    lab.produce(lab.encode(lab.register_under(f"{prefix}{name}", event), {"id": 1, "note": "n"}))
    other = event | {"name": f"{event['name']}_other"}
    wrong = lab.register(other)
    lab.produce(lab.encode(wrong, {"id": 2, "note": "n"}))
    lab.land_well()
    assert errors(lab) == [None, f"foreign_schema: schema id {wrong} belongs to {lab.topic}-value"]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ('{"type": "record", "name": "sale", "namespace": "shop", "fields": []}', "shop.sale"),
        ('{"type": "record", "name": "till.sale", "namespace": "shop", "fields": []}', "till.sale"),
        ('"string"', "string"),
        ('{"type": "map", "values": "int"}', ""),
        ("{", ""),
    ],
)
def test_a_schemas_full_name_is_avros(text: str, name: str) -> None:
    assert full_name(text) == name


class OldRegistry(BaseHTTPRequestHandler):
    """A registry that tells schemas by id, and ids by subject and schema, but not the subjects of an id."""

    def do_GET(self) -> None:
        self._answer(*((200, b'{"schema": "\\"int\\""}') if self.path.count("/") == 3 else (404, b"Not Found")))

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        known = self.path.startswith("/subjects/mine-value?")
        answer = b'{"subject": "mine-value", "id": 7, "version": 1, "schema": "\\"int\\""}'
        self._answer(*((200, answer) if known else (404, b'{"error_code": 40401, "message": "Subject not found"}')))

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None: ...


def test_a_registry_that_lists_no_subjects_is_asked_for_the_allowed_ones(
    offline_settings: Settings, declaration: Declaration
) -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), OldRegistry)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        settings = offline_settings.changed(schema_registry_url=f"http://127.0.0.1:{server.server_port}")
        for topic, reason in (
            ("mine", None),
            ("other", "foreign_schema: schema id 7 is not registered under other-value"),
        ):
            found = TopicSchemas(Registry(settings, 10), replace(declaration, topic=topic))
            assert found.resolve_schemas(SchemaState(), {7}, ()).value.rejected.get(7) == reason
    finally:
        server.shutdown()
        server.server_close()


def test_a_spoiled_table_is_repaired_as_in_the_docs(lab: Lab) -> None:
    foreign_subject = f"{lab.topic}-trades-value"
    trade = record(f"trade_{lab.declaration.table}", id="string", symbol="string")
    schema_id = lab.register_under(foreign_subject, trade)
    lab.produce(lab.encode(schema_id, {"id": "x", "symbol": "s"}))
    # As it was before subjects were asked for: the foreign schema came first and decided the columns.
    declaring(lab, subject=(foreign_subject,)).land_well()
    own = lab.register(sale(lab))
    lab.produce(lab.encode(own, {"id": 1, "note": "n"}))
    assert lab.land_well().dead_letters == 1
    text = (PROJECT_ROOT / "docs" / "operations.md").read_text()
    section = text.split("## A table that a foreign schema spoiled")[1].split("\n## ")[0]
    statements = re.search(r"```sql\n(.*?)```", section, re.DOTALL)
    assert statements is not None
    own_names = {
        "lake.bronze.shiftleft_public_orders": "{table}",
        "symbol, account": "id, symbol",
        "stock_trades": f"{lab.topic}-trades",
        "7": str(schema_id),
    }
    commands = re.sub("|".join(own_names), lambda found: own_names[found[0]], statements[1])
    for command in filter(str.strip, commands.split(";\n")):
        lab.sql(command)
    assert replay.replay(lab.batch_writer(), None) == Replayed(2, 1)
    assert errors(lab) == [f"foreign_schema: schema id {schema_id} belongs to {foreign_subject}", None]
    assert [(row["id"], row["note"]) for row in lab.rows()] == [(None, None), (1, "n")]
    assert [field.name for field in SchemaState.of(lab.table()).columns.fields] == ["id", "note"]
    lab.produce(lab.encode(own, {"id": 2, "note": "m"}))
    assert lab.land_well().dead_letters == 0
    assert_exactly_once(lab, 3)
