"""Spark on a catalog in PostgreSQL: a commit that is lost on the way loses no table, and sessions share connections."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from pyspark.sql import SparkSession, functions

from python_common.catalog.catalog import load_catalog
from python_common.config.settings import Settings
from python_common.errors import UserError
from python_common.process import free_ports
from python_common.spark import thrift, thrift_server
from tests.support.services.postgres import PASSWORD, LossyWay, Postgres
from tests.support.services.spark_jvm import separate_session

DATABASE = "lake_of_spark"
CLIENTS = 4
ROWS = 200


@pytest.fixture(scope="module")
def way(postgres: Postgres) -> Iterator[LossyWay]:
    way = LossyWay(postgres.port)
    yield way
    way.close()


@pytest.fixture(scope="module")
def direct(postgres: Postgres, properties: Path, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """Settings of a lake whose catalog is reached without losses."""
    directory = tmp_path_factory.mktemp("lake")
    return Settings(
        kafka_bootstrap_servers="127.0.0.1:1",
        schema_registry_url="http://127.0.0.1:1",
        warehouse=str(directory / "warehouse"),
        catalog_uri=postgres.database(DATABASE),
        catalog_properties=properties,
        home=directory / "home",
        thrift_port=free_ports(1)[0],
        thrift_password="thrift-secret-c2d8",
    )


@pytest.fixture(scope="module")
def spark(direct: Settings, postgres: Postgres, way: LossyWay) -> Iterator[SparkSession]:
    """A session whose way to the catalog may lose something."""
    with separate_session(direct.changed(catalog_uri=postgres.address(DATABASE, way.port)), "cluster-tests") as spark:
        yield spark


@pytest.mark.parametrize("retries", [0, 4])
@pytest.mark.parametrize("losses", [["request"], ["reply", "reply"]], ids="-".join)
def test_a_lost_commit_of_spark_is_there_or_not_never_half(
    spark: SparkSession, direct: Settings, way: LossyWay, losses: list[str], retries: int
) -> None:
    name = f"bronze.t_{'_'.join(losses)}_{retries}"
    spark.sql("create namespace if not exists bronze")
    spark.sql(f"create table {name} (id bigint) tblproperties ('commit.retry.num-retries' = '{retries}')")
    rows = spark.range(ROWS)
    rows.writeTo(name).append()
    catalog, count = load_catalog(direct), ROWS
    for loss in losses:
        base = catalog.load_table(name).current_snapshot()
        assert base is not None
        # As the ingester commits: refused if its offsets are in the table by now.
        writer = (
            spark.range(count, count + ROWS)
            .writeTo(name)
            .option("isolation-level", "serializable")
            .option("validate-from-snapshot-id", str(base.snapshot_id))
        )
        way.losses.append(loss)
        with pytest.raises(Exception, match=r"Unknown failure|UncheckedSQLException"):
            writer.overwrite(functions.col("id") >= count)
        assert way.losses == []
        there = loss == "reply"
        assert ids(direct, name) == list(range(count + ROWS if there else count))
        # The same batch from the same base again: refused where it had been committed, else accepted.
        if there:
            with pytest.raises(Exception, match="conflicting files"):
                writer.overwrite(functions.col("id") >= count)
        else:
            writer.overwrite(functions.col("id") >= count)
        count += ROWS
        assert ids(direct, name) == list(range(count))
        assert spark.table(name).distinct().count() == count


def ids(settings: Settings, name: str) -> list[int]:
    """Return what PyIceberg reads in every file of a table."""
    return sorted(load_catalog(settings).load_table(name).scan().to_arrow()["id"].to_pylist())


START = """
from python_common.config.settings import from_environment
from python_common.spark.session import LazySparkSession
LazySparkSession(from_environment())()
"""


def test_a_master_that_cannot_be_reached_is_named(direct: Settings, tmp_path: Path) -> None:
    file = tmp_path / "spark.conf"
    file.write_text("spark.master spark://nowhere\n")
    env = {
        "LAKEHOUSE_HOME": str(tmp_path / "home"),
        "LAKEHOUSE_CATALOG_URI": direct.catalog_uri,
        "LAKEHOUSE_CATALOG_PROPERTIES": str(direct.catalog_properties),
        "LAKEHOUSE_WAREHOUSE": direct.warehouse,
        "KAFKA_BOOTSTRAP_SERVERS": direct.kafka_bootstrap_servers,
        "SCHEMA_REGISTRY_URL": direct.schema_registry_url,
        "LAKEHOUSE_SPARK_CONF": str(file),
    }
    command = [sys.executable, "-c", START]
    done = subprocess.run(command, env={**os.environ, **env}, capture_output=True, text=True, check=False)
    assert "Spark does not start on spark://nowhere (SparkException: " in done.stderr.splitlines()[-1]


def test_sessions_of_a_thrift_server_share_its_connections(direct: Settings, postgres: Postgres) -> None:
    settings = direct.changed(catalog_uri=postgres.database("lake_of_sessions"))
    server = thrift_server.service(settings.home / "thrift", settings)
    server.start()
    try:
        with ExitStack() as sessions:
            for number in range(200):
                cursor = sessions.enter_context(thrift.connect(settings))
                if number % 20 == 0:
                    thrift.rows(cursor, f"create table default.t{number} as select {number} as id")
                    assert thrift.rows(cursor, f"select id from default.t{number}") == [(number,)]
            assert 1 <= postgres.clients("lake_of_sessions", "PostgreSQL JDBC") <= CLIENTS
    finally:
        server.stop()


def test_a_thrift_server_that_cannot_open_its_catalog_reports_why(
    direct: Settings, tmp_path: Path, postgres: Postgres
) -> None:
    file = tmp_path / "wrong.properties"
    file.write_text(f"jdbc.password = {PASSWORD}\nclients = none\n")
    file.chmod(0o600)
    server = thrift_server.service(tmp_path / "thrift", direct.changed(catalog_properties=file))
    try:
        with pytest.raises(UserError, match=r'cannot open the catalog at jdbc:postgresql.*For input string: "none"'):
            server.start()
    finally:
        server.stop()
