"""`lakehouse fork` on a lake with a Thrift server: whatever SQL does in a fork, production keeps every byte."""

import random
import re
from collections.abc import Iterator

import pytest

from python_common.config.environment import PROJECT_ROOT
from python_common.config.settings import Settings
from python_common.spark import thrift
from python_dev.stack.temporary import running
from python_jobs import fork
from python_jobs.fork import Fork
from tests.support.commands import run_lakehouse
from tests.support.lake import contents

pytestmark = pytest.mark.slow

# Each leaves the three relations in place.
STATEMENTS = (
    "insert into shop.orders values ({n}, 'new')",
    "delete from shop.orders where id % 7 = {n} % 7",
    "update shop.orders set name = 'changed {n}' where id > {n}",
    "merge into shop.orders t using (select {n} as id) s on t.id = s.id when matched then delete"
    " when not matched then insert (id, name) values (s.id, 'merged')",
    "insert overwrite shop.orders select id + 1, name from shop.items",
    "create or replace table shop.orders using iceberg as select id, name from shop.items",
    "create or replace view shop.names as select name, {n} as n from shop.items",
    "alter table shop.items add column c{n}_{step} int",
    "alter table shop.items set tblproperties ('n' = '{n}')",
    "call lake.system.rewrite_data_files(table => 'shop.items', options => map('rewrite-all', 'true'))",
    "call lake.system.rewrite_manifests('shop.items')",
    "create table shop.t{step} using iceberg as select * from shop.orders",
)
REFUSED = (
    "drop table shop.items purge",
    "call lake.system.expire_snapshots(table => 'shop.items', older_than => now(), retain_last => 1)",
    "call lake.system.remove_orphan_files(table => 'shop.items')",
    "insert into base.shop.items values (1, 'x')",
    "drop table base.shop.items",
)


@pytest.fixture(scope="module")
def production(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    with running(tmp_path_factory.mktemp("production"), "thrift") as (settings, _):
        with thrift.connect(settings) as cursor:
            for statement in (
                "create namespace lake.shop",
                "create table shop.orders using iceberg as select id, concat('n', id) as name from range(50)",
                "create table shop.items using iceberg as select * from shop.orders",
                "insert into shop.items values (99, 'last')",
                "create view shop.names as select name from shop.items",
            ):
                thrift.rows(cursor, statement)
        yield settings


@pytest.fixture
def forked(production: Settings) -> Iterator[Fork]:
    made = run_lakehouse("fork", "create", "mine")
    assert made.returncode == 0, made.stderr
    [one] = fork.forks(production)
    assert made.stdout.endswith(f"source {one.env_file}; dbt build\n")
    yield one
    if one.directory.exists():
        fork.drop(production, "mine")


def test_a_random_statement_in_a_fork_changes_production(production: Settings, forked: Fork) -> None:
    before = contents(production)
    rng = random.Random(0)
    with thrift.connect(forked.settings) as cursor:
        for step in range(50):
            thrift.rows(cursor, rng.choice(STATEMENTS).format(n=rng.randrange(60), step=step))
        for statement in REFUSED:
            with pytest.raises(Exception, match=r"GC is disabled|read only|Unknown failure|Failed to"):
                thrift.rows(cursor, statement)
        assert thrift.rows(cursor, "select count(*) from base.shop.items") == [(51,)]
        thrift.rows(cursor, "create or replace view shop.names as select 'of the fork' as name from shop.items")
        assert thrift.rows(cursor, "select distinct name from shop.names") == [("of the fork",)]
    assert contents(production) == before
    assert run_lakehouse("fork", "drop", "mine").returncode == 0
    after = contents(production)
    assert before.keys() - {"catalog"} <= after.keys()
    assert not forked.directory.exists()


def test_the_query_of_the_page_counts_what_differs(forked: Fork) -> None:
    [query] = re.findall(r"```sql\n(.*?)```", (PROJECT_ROOT / "docs" / "fork.md").read_text(), re.DOTALL)
    names = {"marts.fct_order_lines": "shop.orders", "order_line_key": "id", "line_amount": "name"}
    query = re.sub("|".join(names), lambda match: names[match[0]], query)
    with thrift.connect(forked.settings) as cursor:
        assert thrift.rows(cursor, query) == [(0,)]
        thrift.rows(cursor, "update shop.orders set name = 'changed' where id in (1, 2)")
        thrift.rows(cursor, "insert into shop.orders values (1000, 'new')")
        thrift.rows(cursor, "delete from shop.orders where id = 3")
        assert thrift.rows(cursor, query) == [(4,)]
