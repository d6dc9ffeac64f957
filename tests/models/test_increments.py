"""Random waves of events, a run of dbt after each, against one build of everything: the same rows in every table."""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import accumulate

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import EqualTo
from pyiceberg.table import Table

from python_common.catalog.catalog import load_catalog
from python_common.config.settings import from_environment
from python_common.spark import thrift
from python_dev.stack.sample_data.expected import rules
from python_dev.stack.sample_data.log import Record
from python_dev.stack.temporary import running
from python_ingest.declare.topics import read_declarations
from tests.support import bronze
from tests.support.commands import run_dbt, run_dbt_well
from tests.support.services.interpreted import INTERPRETED
from tests.support.shuffled_events import START, Event, Row, events, waves

pytestmark = pytest.mark.slow

SEEDS = range(5)
WAVES = 2
# Views stay as they are, and reference data does not change.
STORED = ("config.materialized:incremental", "config.materialized:table")
COMPARED = ("deduplicated", "joined", "marts")
# By table its unique key. Trades have no key to conflict on: their rows are only ever inserted.
RECOMPUTED = {
    "joined.int_order_items_priced": "order_item_id",
    "marts.fct_completed_orders": "order_id",
    "marts.fct_order_lines": "order_line_key",
    "marts.fct_product_sales": "order_item_id",
}
RECOMPUTED_MODELS = tuple(name.partition(".")[2] for name in RECOMPUTED)


@pytest.fixture(scope="module")
def own_lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Catalog]:
    """The catalog of a separate lake with just a Thrift server: what the tests put in bronze came from no topic."""
    with running(tmp_path_factory.mktemp("shuffled"), "thrift", more=INTERPRETED) as (settings, _):
        yield load_catalog(settings)


def contents(catalog: Catalog) -> dict[str, Counter[str]]:
    """Return the rows of all stored tables, as text."""
    return {
        ".".join(identifier): Counter(map(repr, catalog.load_table(identifier).scan().to_arrow().to_pylist()))
        for schema in COMPARED
        for identifier in catalog.list_tables(schema)
    }


def keys_of(catalog: Catalog) -> dict[str, set[object]]:
    """Return the keys of the recomputed tables."""
    return {
        name: set(catalog.load_table(name).scan(selected_fields=(key,)).to_arrow()[key].to_pylist())
        for name, key in RECOMPUTED.items()
    }


def changed_rows(table: Table) -> Counter[str]:
    """Return how many rows the MERGEs of a table inserted, updated and deleted."""
    counted: Counter[str] = Counter()
    for snapshot in table.snapshots():
        for change in ("inserted", "matched-updated", "matched-deleted"):
            counted[change] += int(snapshot.summary[f"spark.merge-into.num-target-rows-{change}"] or 0)
    return counted


def build(*arguments: str, variables: str = "rebuild_below_rows: 0") -> None:
    """Run `dbt build` without tests, with MERGEs in tables that are small, as they are in large ones."""
    unused = ("test", "unit_test", "exposure", "snapshot")
    run_dbt_well("build", "--vars", f"{{{variables}}}", "--exclude-resource-type", *unused, *arguments)


@pytest.fixture(scope="module")
def built(own_lake: Catalog) -> Catalog:
    """The lake with the rows of all waves: built by the tests before, or at once where they do not run."""
    mart = "marts.fct_completed_orders"
    if not (own_lake.table_exists(mart) and own_lake.load_table(mart).scan().count()):
        tables = bronze.create(own_lake)
        for batch, of_seeds in enumerate(zip(*(waves(seed, WAVES) for seed in SEEDS), strict=True), start=1):
            bronze.land(tables, batch, [event for wave in of_seeds for event in wave])
        build("--exclude", "ops", "exports", "--full-refresh")
    return own_lake


def test_any_increments_of_each_seed_equal_one_build(own_lake: Catalog) -> None:
    tables = bronze.create(own_lake)
    for batch, of_seeds in enumerate(zip(*(waves(seed, WAVES) for seed in SEEDS), strict=True), start=1):
        bronze.land(tables, batch, [event for wave in of_seeds for event in wave])
        if batch == 1:
            build("--exclude", "ops", "exports", "--full-refresh")
            first = keys_of(own_lake)
        else:
            build("--select", *STORED, "--exclude", "ops", "exports")
    incremental = contents(own_lake)
    changes = {name: changed_rows(own_lake.load_table(name)) for name in RECOMPUTED}
    build("--select", *STORED, "--exclude", "ops", "exports", "--full-refresh")
    rebuilt = contents(own_lake)
    assert incremental.keys() == rebuilt.keys()
    for name in rebuilt:
        assert incremental[name] == rebuilt[name], f"{name}: {incremental[name] ^ rebuilt[name]}"
        assert rebuilt[name], f"{name} is empty"
    for name, changed in changes.items():
        assert set(+changed) == {"inserted", "matched-deleted"}, f"{name}: {changed}"
    for name, keys in keys_of(own_lake).items():
        assert (bool(keys - first[name]), bool(first[name] - keys)) == (True, True), f"{name} gains or loses no key"


def test_reconciliation_balances_over_generations_of_topics(own_lake: Catalog) -> None:
    build("--select", "exports", "ops_reconciliation", variables="weeks: 2026-W42")
    checks = own_lake.load_table("ops.reconciliation").scan().to_arrow().to_pylist()
    assert [check for check in checks if check["difference"]] == []
    deduplicated = [check for check in checks if check["check_name"] == "staged = deduplicated + removed"]
    assert len(deduplicated) == 8
    assert all(check["left_rows"] for check in deduplicated)


def test_a_payment_in_both_lists_escapes_reconciliation(own_lake: Catalog) -> None:
    """A completed payment gets the key of an unmatched one: both lists have that one, and neither has the other."""
    with thrift.connect(from_environment()) as cursor:
        [(lost,)] = thrift.rows(cursor, "select min(order_id) from marts.fct_completed_orders")
        [(unmatched,)] = thrift.rows(cursor, "select min(order_id) from joined.int_payments_unmatched")
        thrift.rows(cursor, f"update marts.fct_completed_orders set order_id = {unmatched} where order_id = {lost}")
        build("--select", "ops_reconciliation", variables="weeks: 2026-W42")
        thrift.rows(cursor, f"update marts.fct_completed_orders set order_id = {lost} where order_id = {unmatched}")
    checks = own_lake.load_table("ops.reconciliation").scan().to_arrow().to_pylist()
    assert {check["check_name"]: check["difference"] for check in checks if check["difference"]} == {
        "payments = completed or unmatched": 1
    }


def in_order(table: str, key: str) -> dict[int | str, list[tuple[int, int, Record]]]:
    """Return generation, time and record of each change of a key of a shop table in Kafka's order, by plain Python."""
    of_keys: dict[int | str, dict[int, list[Record]]] = defaultdict(lambda: defaultdict(list))
    for seed in SEEDS:
        for event in events(seed):
            if event.table == f"shiftleft_public_{table}":
                row, time_ms = event.row, int(event.row["kafka_timestamp"].timestamp() * 1000)
                position = (table, row["kafka_partition"], time_ms, time_ms)
                record = Record(*position, None, None, offset=row["kafka_offset"])
                of_keys[row["kafka_key"][key]][row["kafka_generation"] or 0].append(record)
    return {
        number: [(generation, *change) for generation in (0, 1) for change in rules.in_order(of_key[generation])]
        for number, of_key in of_keys.items()
    }


@pytest.mark.parametrize(("table", "key"), [("orders", "order_id"), ("order_items", "order_item_id")])
def test_the_latest_change_is_that_of_plain_python(own_lake: Catalog, table: str, key: str) -> None:
    expected = {
        number: (generation, time_ms, record.partition, record.offset)
        for number, changes in in_order(table, key.replace("_", "")).items()
        for generation, time_ms, record in changes[-1:]
    }
    stored = own_lake.load_table(f"deduplicated.int_{table}_deduplicated").scan().to_arrow().to_pylist()
    assert {
        row[key]: (
            row["kafka_generation"],
            row["monotone_timestamp"].timestamp() * 1000,
            row["kafka_partition"],
            row["kafka_offset"],
        )
        for row in stored
    } == expected


@pytest.mark.parametrize(
    ("table", "key"), [("products", "product_id"), ("customers", "customer_id"), ("addresses", "address_id")]
)
def test_periods_of_validity_are_those_of_plain_python(own_lake: Catalog, table: str, key: str) -> None:
    expected = {}
    for changes in in_order(table, key.replace("_", "")).values():
        times = [*accumulate((time_ms for _, time_ms, _ in changes), max)]
        for (generation, _, record), valid_from, valid_to in zip(changes, times, [*times[1:], None], strict=True):
            name = "1-" * generation + f"{record.partition}-{record.offset}"
            expected[name] = (valid_from, valid_to)
    stored = own_lake.load_table(f"deduplicated.int_{table}_versions").scan().to_arrow().to_pylist()
    assert {
        row["version_key"]: tuple(
            moment and moment.timestamp() * 1000 for moment in (row["valid_from"], row["valid_to"])
        )
        for row in stored
    } == expected


@pytest.mark.parametrize(("limit", "is_merged"), [(1, True), (500_000, False)])
def test_batches_that_are_read_again_change_nothing(own_lake: Catalog, limit: int, is_merged: bool) -> None:
    """As after a crash between the write and the note of how far it has read, in a large table and in a small one."""
    name = "marts.fct_completed_orders"
    table = own_lake.load_table(name)
    read = {key: value for key, value in table.properties.items() if key.startswith("lakehouse.read.")}
    before, snapshots = contents(own_lake)[name], len(table.snapshots())
    with table.transaction() as transaction:
        transaction.set_properties({key: value.replace(f"/{WAVES}", f"/{WAVES - 1}") for key, value in read.items()})
    build("--select", "fct_completed_orders", variables=f"rebuild_below_rows: {limit}")
    table.refresh()
    assert len(read) == 2
    assert {key: table.properties[key] for key in read} == read
    assert len(table.snapshots()) == snapshots + 1
    assert any("merge-into" in key for key in table.current_snapshot().summary.additional_properties) == is_merged
    assert contents(own_lake)[name] == before
    # Without new batches a model that is not skipped decides so itself.
    build("--select", "fct_completed_orders", variables="skip_unchanged: false")
    table.refresh()
    assert len(table.snapshots()) == snapshots + 1


def test_a_table_without_new_batches_is_not_in_the_plan(built: Catalog) -> None:
    """Else each topic without a new batch costs an increment of `ops_ingest_batches` the scans of its table."""
    compiled = run_dbt_well("--quiet", "compile", "--select", "ops_ingest_batches", "--output", "json")
    of_all = json.loads(compiled)["compiled"]
    bounds = re.findall(r"lakehouse_bound\('(\w+_(?:after|until))'", of_all)
    others = {name: 1 for name in bounds if not name.startswith("payments_")}
    with thrift.connect(from_environment()) as cursor:
        [(all_topics,)] = thrift.rows(cursor, f"explain {of_all}")
        thrift.rows(cursor, f"set `lakehouse.bounds`=`{json.dumps(others)}`")
        [(payments,)] = thrift.rows(cursor, f"explain {of_all}")
        thrift.rows(cursor, f"set `lakehouse.bounds`=`{json.dumps(others | {'payments_until': 1})}`")
        read = thrift.rows(cursor, f"select distinct topic, batch from ({of_all})")
    assert len(set(re.findall(r"bronze\.(\w+)", all_topics))) == len(read_declarations())
    assert set(re.findall(r"bronze\.(\w+)", payments)) == {"payments"}
    # A batch that lands while the model is built is left to the next run, with its rows.
    assert read == [("payments", 1)]


def land_change(catalog: Catalog, batch: int, name: str, number: int, change: Row) -> None:
    """Land one change of a shop table."""
    table = f"shiftleft_public_{name}"
    position = {"kafka_topic": table, "kafka_partition": 0, "kafka_offset": number, "kafka_timestamp": START}
    event = Event(table, {"kafka_raw_value": b"row"} | change | position)
    bronze.land({table: catalog.load_table(f"bronze.{table}")}, batch, [event])


def test_what_landed_after_the_slice_is_no_lost_key(own_lake: Catalog) -> None:
    number = 10**6
    land_change(own_lake, WAVES + 1, "order_items", number, {"orderitemid": number, "orderid": number, "quantity": 1})
    deduplicated = own_lake.load_table("deduplicated.int_order_items_deduplicated")
    noted = deduplicated.properties["lakehouse.read.bronze.shiftleft_public_order_items"]
    assert noted.endswith(f"/{WAVES}")
    tested = run_dbt("test", "--select", "int_order_items_deduplicated,test_name:no_key_lost")
    assert "PASS no_key_lost" in tested.stdout, tested.stdout[-3000:]


def test_what_the_priced_items_had_not_read_is_made_up_for(built: Catalog) -> None:
    """A run may leave out the table in between: its readers then still see its old rows."""
    marts = ("fct_order_lines", "fct_product_sales")
    number = 10**6 + 1
    [sale] = built.load_table("marts.fct_product_sales").scan(limit=1).to_arrow().to_pylist()
    change = {"orderitemid": number, "orderid": sale["order_id"], "productid": sale["product_id"], "quantity": 1}
    land_change(built, WAVES + 2, "order_items", number, change)
    build("--select", "int_order_items_deduplicated", *marts)
    build("--select", "int_order_items_priced", *marts)
    keys = (EqualTo("order_line_key", f"shop-{number}"), EqualTo("order_item_id", number))
    for mart, key in zip(marts, keys, strict=True):
        assert built.load_table(f"marts.{mart}").scan(row_filter=key).to_arrow().num_rows == 1, mart


def test_a_model_reads_again_after_an_upstream_table_was_rebuilt(built: Catalog) -> None:
    """A record is gone from bronze: no batch has it, and a full refresh of one model follows."""
    [order] = built.load_table("marts.fct_completed_orders").scan(limit=1).to_arrow().to_pylist()
    built.load_table("bronze.shiftleft_public_orders").delete(EqualTo("orderid", order["order_id"]))
    build("--select", "int_orders_deduplicated", "--full-refresh")
    build("--select", *RECOMPUTED_MODELS)
    incremental = contents(built)
    build("--select", *RECOMPUTED_MODELS, "--full-refresh")
    assert incremental == contents(built)
    completed = built.load_table("marts.fct_completed_orders")
    assert completed.scan(row_filter=EqualTo("order_id", order["order_id"])).to_arrow().num_rows == 0


def test_what_a_rollback_took_from_a_table_is_read_again(built: Catalog) -> None:
    before = contents(built)
    table = built.load_table("deduplicated.int_order_items_deduplicated")
    earlier = table.current_snapshot().parent_snapshot_id
    with table.manage_snapshots() as change:
        change.set_current_snapshot(snapshot_id=earlier)
    assert contents(built) != before
    # Meanwhile its readers go on with what it has.
    build("--select", *RECOMPUTED_MODELS)
    build("--select", "int_order_items_deduplicated", *RECOMPUTED_MODELS)
    assert contents(built) == before


def test_a_recreated_topic_is_read_from_its_first_batch(own_lake: Catalog) -> None:
    """Its new bronze table counts from 1 again, far below what was read; the rows of the former one stay."""
    numbers = (10**6 + 10, 10**6 + 11)
    for number in numbers:
        order = {"orderid": number, "customerid": 1, "orderdate": START.replace(tzinfo=None)}
        land_change(own_lake, WAVES + 5, "orders", number, order)
    former = own_lake.load_table("bronze.payments")
    own_lake.drop_table("bronze.payments")
    recreated = own_lake.create_table(
        "bronze.payments", former.schema(), properties=former.properties | {"lakehouse.table-id": "recreated"}
    )
    known = own_lake.load_table("deduplicated.int_payments_deduplicated").scan().count()
    for batch, number in enumerate(numbers, start=1):
        paid = {"order_id": number, "customer_id": 1, "confirmation_code": "AB12CD34", "amount": 1.0, "ts": START}
        position = {"kafka_topic": "payments", "kafka_partition": 0, "kafka_offset": batch, "kafka_timestamp": START}
        event = Event("payments", paid | position | {"kafka_raw_value": b"row"})
        bronze.land({"payments": recreated}, batch, [event])
        build("--select", "int_orders_deduplicated", "int_payments_deduplicated", "fct_completed_orders")
        assert own_lake.load_table("deduplicated.int_payments_deduplicated").scan().count() == known + batch
        completed = own_lake.load_table("marts.fct_completed_orders").scan(row_filter=EqualTo("order_id", number))
        assert completed.to_arrow().num_rows == 1


def test_tables_are_not_sorted_by_few_affected_keys(built: Catalog) -> None:
    """The table that is merged into is limited to the keys, too. Spark broadcasts only what has a hint here."""
    number = 10**6 + 6
    land_change(built, WAVES + 6, "order_items", number, {"orderitemid": number, "orderid": number, "quantity": 1})
    land_change(built, WAVES + 6, "orders", number, {"orderid": number})
    build("--select", "int_order_items_deduplicated", "int_orders_deduplicated")
    merges = ("--vars", "{rebuild_below_rows: 0}")
    output = run_dbt_well("--debug", "--log-format", "json", "run", *merges, "--select", *RECOMPUTED_MODELS)
    statements = [json.loads(line)["data"].get("sql", "") for line in output.splitlines() if '"SQLQuery"' in line]
    with thrift.connect(from_environment()) as cursor:
        thrift.rows(cursor, "set spark.sql.autoBroadcastJoinThreshold = -1")
        for mart in RECOMPUTED_MODELS:
            of_mart = [sql for sql in statements if f'model.retail_lakehouse.{mart}"' in sql]
            before = [sql for sql in of_mart if "lakehouse.bounds" in sql or "temporary view" in sql]
            [merge] = [sql for sql in of_mart if "merge into" in sql]
            for sql in before:
                thrift.rows(cursor, sql)
            [[plan]] = thrift.rows(cursor, f"explain {merge}")
            merged, stored, *others = [line for line in plan.splitlines() if "Join" in line]
            assert ("RightOuter" in merged, "LeftSemi" in stored) == (True, True), mart
            # Items of affected customers are no affected keys yet.
            semi_joins = [line for line in (stored, *others) if "LeftSemi" in line and "[customer_id#" not in line]
            assert len(semi_joins) >= 3, mart
            assert [line for line in semi_joins if "BroadcastHashJoin" not in line] == [], mart
