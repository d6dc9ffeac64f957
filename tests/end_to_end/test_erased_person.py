"""A person is erased by a command that is killed on the way: nothing of them is left, and everyone else is as before.

The tests of this module run in order and share a lake: what is tested is a history, which test_a_fresh_lake.py begins.
"""

import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from python_common import pii_key, private_files
from python_common.catalog.catalog import load_catalog
from python_common.config.environment import home, landed_rows
from python_dev.stack.sample_data.log import Log, shop_topic
from python_export.publishing.target import open_target
from python_ingest.maintenance import receipts
from tests.support import planted
from tests.support.commands import run_lakehouse
from tests.support.kills import running
from tests.support.lake import Lake, succeed
from tests.support.person import ADDRESS, CUSTOMER
from tests.support.pii_values import pii_values

pytestmark = [pytest.mark.xdist_group("small lake"), pytest.mark.slow]

ERASE = ("erase", "--subject", f"shop.customer={CUSTOMER}", "--subject", f"payments.customer={CUSTOMER}")
# How many rows each table has of the person alone.
ROWS = {
    "deduplicated.int_customers_versions": 2,
    "deduplicated.int_addresses_versions": 1,
    "deduplicated.int_orders_deduplicated": 2,
    "deduplicated.int_payments_deduplicated": 2,
    "deduplicated.int_order_items_deduplicated": 0,
    "deduplicated.int_products_versions": 0,
    "deduplicated.int_store_orders_deduplicated": 0,
    "deduplicated.int_trades_deduplicated": 0,
    "marts.dim_customers": 1,
    "marts.dim_customers_history": 2,
    "marts.fct_order_lines": 2,
    "marts.fct_product_sales": 2,
    "marts.fct_completed_orders": 2,
    "marts.fct_trades": 0,
}
# The datasets whose rows name their person, and the one whose rows are groups.
HOLDING, OTHERS = ("completed_orders", "customer_activity", "order_lines", "product_sales"), ("product_demand",)
# The broker's records are retention's to delete, and what the Thrift server shuffled goes when it is started again: the
# command names the one, docs/privacy.md both.
NOT_SEARCHED = (Path("kafka"), Path("thrift/tmp"))

Position = tuple[str, int, int]


@dataclass
class Rows:
    """The rows of bronze by place, and those of the tables that are built from it, as text."""

    bronze: dict[Position, dict[str, Any]]
    built: dict[str, Counter[str]]


def bronze(lake: Lake) -> dict[Position, dict[str, Any]]:
    catalog = load_catalog(lake.settings)
    return {
        (row["kafka_topic"], row["kafka_partition"], row["kafka_offset"]): row
        for table in lake.tables("bronze")
        for row in catalog.load_table(table).scan().to_arrow().to_pylist()
    }


def rows(lake: Lake) -> Rows:
    return Rows(bronze(lake), {table: Counter(map(repr, lake.query(table, "select * from rows"))) for table in ROWS})


def erased_positions(lake: Lake) -> set[Position]:
    return {position for position, row in bronze(lake).items() if (row["decode_error"] or "").startswith("erased: ")}


def positions_of(person: Log) -> set[Position]:
    """Return where the person's records are; an item without its order is no person's."""
    return {
        (record.topic, record.partition, record.offset)
        for record in person
        if record.topic != shop_topic("order_items")
    }


def state(lake: Lake) -> set[str]:
    """Return every state that tables have, and every file that is published."""
    catalog = load_catalog(lake.settings)
    # The command holds the lease while it looks.
    tables = {table for schema in lake.schemas() for table in lake.tables(schema)} - {"ops.leases"}
    files = map(str, (home() / "exports").rglob("*"))
    return {catalog.load_table(table).metadata_location for table in tables} | set(files)


def first_versions(lake: Lake, datasets: tuple[str, ...]) -> set[str]:
    """Return the versions of some datasets that are published before anything is erased."""
    return {f"{name}/{week}/v1" for name in datasets for week in (lake.last_week.minus(1), lake.last_week)}


def artefacts(folder: str = ".") -> Iterator[tuple[str, bytes]]:
    """Yield name and content of every file in a folder of the lake's home."""
    for path in (home() / folder).rglob("*"):
        name = path.relative_to(home())
        if path.is_file() and not any(name.is_relative_to(unsearched) for unsearched in NOT_SEARCHED):
            yield str(name), planted.content(path)


def patterns(lake: Lake, person: Log) -> planted.Index:
    pseudonyms = pii_key.pseudonyms(lake.settings.needed("pii_key_file"), "payments.customer", str(CUSTOMER))
    return planted.index_of_texts(
        {**pii_values(person), "address": {ADDRESS}, "customer": {f"shop-{CUSTOMER}", *pseudonyms.values()}}
    )


@pytest.fixture(scope="module")
def lake(small_lake: Lake, published: object) -> Lake:
    return small_lake


@pytest.fixture(scope="module")
def before(lake: Lake) -> Rows:
    """The lake when two weeks are published."""
    assert lake.versions() == first_versions(lake, HOLDING + OTHERS)
    return rows(lake)


@pytest.fixture(scope="module")
def killed(lake: Lake, person: Log, before: Rows) -> str:
    """What the command has printed until it was killed, with all that it had started, once bronze was erased.

    There is a fork, which holds the person too, and so do rows that a killed review has left.
    """
    (private_files.directory(landed_rows()) / "bronze.sales.parquet").write_text(str(CUSTOMER))
    succeed({"fork": lambda: run_lakehouse("fork", "create", "mine")})
    with running(*ERASE, output=subprocess.PIPE) as process:
        while erased_positions(lake) != positions_of(person):
            assert process.poll() is None, process.communicate()[0]
            time.sleep(1)
    return process.communicate()[0]


@pytest.fixture(scope="module")
def erased(killed: str) -> str:
    """What the command printed when it ran again."""
    done = succeed({"erase": lambda: run_lakehouse(*ERASE, "--published")})["erase"]
    return done.stdout + done.stderr


def test_a_dry_run_of_an_erasure_changes_the_lake(lake: Lake, person: Log, before: Rows) -> None:
    at_first = state(lake)
    lines = succeed({"erase": lambda: run_lakehouse(*ERASE, "--dry-run")})["erase"].stdout.splitlines()
    rows_of = Counter(topic.replace(".", "_") for topic, *_ in positions_of(person))
    assert {f"bronze.{table}: {count} rows would be erased" for table, count in rows_of.items()} <= {*lines}
    named = {line.split()[0] for line in lines if line.endswith("of the person, masked")}
    assert named == set(map(open_target(lake.settings).address, first_versions(lake, HOLDING)))
    assert state(lake) == at_first


def test_a_table_that_is_not_built_is_named_after_an_erasure(lake: Lake, before: Rows) -> None:
    catalog = load_catalog(lake.settings)
    catalog.create_table("deduplicated.int_removed", pa.schema([("customer_id", pa.int64())]))
    try:
        result = run_lakehouse(*ERASE)
    finally:
        catalog.drop_table("deduplicated.int_removed")
    assert result.returncode == 1
    assert "deduplicated.int_removed may hold the person" in result.stderr
    assert "drop table deduplicated.int_removed purge" in result.stderr
    assert not erased_positions(lake)


def test_a_killed_erasure_is_taken_for_a_finished_one(lake: Lake, person: Log, killed: str) -> None:
    """The positive control of the search, too."""
    assert [receipt.state for receipt in receipts.every(load_catalog(lake.settings))] == [receipts.BEGUN]
    assert "fork mine had the same rows: it is dropped\n" in killed
    assert list((home() / "forks").iterdir()) == []
    assert not landed_rows().exists()
    wanted = patterns(lake, person)
    planted_values = set().union(*(planted.search(wanted, content) for _, content in artefacts("warehouse")))
    assert planted_values >= {f"{field} raw" for field in (*pii_values(person), "address", "customer")}


def test_the_same_command_does_not_finish_a_killed_erasure(lake: Lake, person: Log, erased: str) -> None:
    assert "rebuilding all models behind these tables\n" in erased
    [receipt] = receipts.every(load_catalog(lake.settings))
    assert receipt.state == receipts.DONE
    rows_of = {table: entry["rows"] for table, entry in receipt.tables.items()}
    assert rows_of == Counter(f"bronze.{topic.replace('.', '_')}" for topic, *_ in positions_of(person))
    withdrawn = map(open_target(lake.settings).address, first_versions(lake, HOLDING))
    assert (receipt.versions, receipt.not_searched) == (dict.fromkeys(withdrawn, "withdrawn"), [])
    assert str(CUSTOMER) not in str(receipt)
    again = succeed({"erase": lambda: run_lakehouse(*ERASE, "--published")})["erase"].stdout
    assert "no row has come since: nothing to do\n" in again
    assert receipts.every(load_catalog(lake.settings)) == [receipt]


def test_published_rows_can_be_distinguished_from_erased_ones(lake: Lake, erased: str) -> None:
    output = succeed({"verify": lambda: run_lakehouse("export", "verify")})["verify"].stdout
    [receipt] = receipts.every(load_catalog(lake.settings))
    note_of = dict(line.split(": ", 1) for line in output.splitlines())
    for path in first_versions(lake, HOLDING):
        assert note_of[path].startswith("withdrawn on "), path
    for path in first_versions(lake, OTHERS):
        assert note_of[path].startswith("its snapshot was erased on "), path
    assert {note_of[path] for path in receipt.replaced_by} == {"OK"}


def test_the_next_runs_go_on_around_the_erased_rows(lake: Lake, erased: str) -> None:
    published = lake.versions()
    done = succeed(
        {
            "verify": lambda: run_lakehouse("ingest", "verify", "--decoded"),
            "weekly": lambda: run_lakehouse("weekly", "--week", str(lake.last_week)),
        }
    )
    assert "0 new records of 8 topics" in done["weekly"].stderr
    assert lake.versions() == published


def test_everybody_else_is_as_before(lake: Lake, person: Log, before: Rows, erased: str) -> None:
    after = rows(lake)
    assert after.bronze.keys() == before.bronze.keys()
    assert {position for position, row in after.bronze.items() if row != before.bronze[position]} == positions_of(
        person
    )
    assert erased_positions(lake) == positions_of(person)
    for table, count in ROWS.items():
        gone = before.built[table] - after.built[table]
        assert not after.built[table] - before.built[table], table
        assert gone.total() == count == sum(str(CUSTOMER) in row for row in gone), table


def test_no_byte_of_the_person_is_left(lake: Lake, person: Log, killed: str, erased: str) -> None:
    everything = [*artefacts(), ("the output of the command", (killed + erased).encode())]
    assert {".parquet", ".avro", ".db", ".csv", ".log", ".sql", ".json", ".eml"} <= {
        Path(name).suffix for name, _ in everything
    }
    planted.assert_nothing_of(patterns(lake, person), everything)
    assert not [name for name, content in everything if str(CUSTOMER).encode() in content]
