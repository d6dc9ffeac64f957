"""A table that a foreign schema spoiled, repaired as docs/operations.md has it."""

import re

import pytest

from python_common.config.environment import PROJECT_ROOT
from python_ingest.bronze.schema_state import SchemaState
from python_ingest.maintenance import replay
from python_ingest.maintenance.replay import Replayed
from tests.support.topic_fixture import TopicFixture, assert_exactly_once, record

pytestmark = pytest.mark.slow


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
