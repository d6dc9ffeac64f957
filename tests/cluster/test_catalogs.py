"""The contract of each catalog of a lake on servers: Spark and Python share it, commits keep rows, refusals say why."""

import select
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from socketserver import BaseRequestHandler
from uuid import uuid4

import boto3
import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from sqlalchemy.exc import OperationalError

from python_common.catalog.catalog import _on_server, load_catalog, load_table
from python_common.config.settings import Settings
from python_common.errors import UserError
from python_common.failure import to_user_error
from python_common.process import free_ports
from python_common.spark import thrift, thrift_server
from python_ingest.bronze import tables
from python_ingest.bronze.commit import BatchMetadata, CommitConflict, overwrite
from python_ingest.bronze.positions import Position, position_of
from python_ingest.declare.topics import Declaration
from python_ingest.kafka.offset_range import OffsetRange
from python_ingest.maintenance.maintain import Retention, maintain_table
from python_ingest.maintenance.purge import delete_orphans
from tests.support.commands import run_lakehouse, run_python
from tests.support.services.http_server import serving
from tests.support.services.postgres import PASSWORD, Postgres
from tests.support.services.spark_jvm import separate_session
from tests.support.services.weed import KEY, SECRET, TABLE_BUCKET, Weed

ROWS = 50
# The connections of a Spark to its catalog.
CLIENTS = 4
NAMED_BY_VARIABLES = (
    *("home", "catalog_uri", "catalog_properties", "warehouse", "export_root", "pii_key_file"),
    *("kafka_bootstrap_servers", "schema_registry_url"),
)
# The properties of a catalog behind REST, whose credential is a variable; the keys of its store are AWS's.
REST = {
    "oauth2": "credential = env:LAKE_CREDENTIAL\nscope = catalog",
    "sigv4": "rest.auth.type = sigv4\nrest.signing-region = us-east-1\nrest.signing-name = s3tables",
}


@pytest.fixture(params=["postgresql", *REST])
def lake(
    request: pytest.FixtureRequest, in_s3: Settings, weed: Weed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Settings:
    """Settings of a lake in S3, its catalog in PostgreSQL or behind REST."""
    if request.param == "postgresql":
        return in_s3
    monkeypatch.setenv("LAKE_CREDENTIAL", f"{KEY}:{SECRET}")
    file = properties_file(tmp_path, REST[request.param])
    return in_s3.changed(catalog_uri=weed.catalog, warehouse=f"s3://{TABLE_BUCKET}", catalog_properties=file)


def properties_file(directory: Path, lines: str) -> Path:
    path = directory / "catalog.properties"
    path.write_text(f"{lines}\n")
    path.chmod(0o600)
    return path


def name_in_environment(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have processes that a test starts use a lake."""
    for name in NAMED_BY_VARIABLES:
        monkeypatch.setenv(Settings.model_fields[name].alias, str(getattr(settings, name)))


def land(spark: SparkSession, topic: Declaration, base: Position, start: int) -> None:
    """Commit a batch of two partitions as the ingester does, planned from a base."""
    batch = base.last_batch + 1
    known = {
        "kafka_topic": F.lit(topic.topic),
        "kafka_partition": F.expr("cast(id % 2 as int)"),
        "kafka_offset": F.expr(f"{start} + id div 2"),
        "ingest_batch": F.lit(batch),
        "ingested_at": F.lit(datetime(2026, 11, 16, tzinfo=UTC)),
        "kafka_key": F.expr("cast(id as string)"),
    }
    fields = spark.table(f"lake.{topic.identifier}").schema.fields
    rows = spark.range(0, 2 * ROWS, 1, 1).select(
        *(known.get(field.name, F.lit(None)).cast(field.dataType).alias(field.name) for field in fields)
    )
    ranges = tuple(OffsetRange(partition, start, start + ROWS) for partition in (0, 1))
    ends = {offset_range.partition: offset_range.until for offset_range in ranges}
    overwrite(rows, topic.identifier, base, BatchMetadata("test", batch, ranges, ends, ()))


def offsets(table: Table) -> list[tuple[int, int]]:
    """Return partition and offset of every row, as PyIceberg reads them."""
    rows = table.scan(selected_fields=("kafka_partition", "kafka_offset")).to_arrow().to_pylist()
    return sorted((row["kafka_partition"], row["kafka_offset"]) for row in rows)


def test_batches_are_taken_once_and_stay_when_maintained(lake: Settings) -> None:
    topic = Declaration("shop.orders", "bronze", f"orders_{uuid4().hex}", "string", "dead_letter")
    catalog = load_catalog(lake, create=True)
    catalog.create_namespace_if_not_exists(topic.schema)
    table = tables.create(catalog, topic)
    assert table.location().startswith(lake.warehouse)
    assert load_table(catalog, "bronze.other") is None
    with separate_session(lake, "catalog-tests") as spark:
        for count in range(2):
            base = position_of(table.refresh())
            assert base.next_offsets == ({0: ROWS * count, 1: ROWS * count} if count else {})
            land(spark, topic, base, ROWS * count)
            # A second ingester that was as far: whatever it has to add, it comes too late.
            with pytest.raises(CommitConflict):
                land(spark, topic, base, ROWS * count)
        landed = [(partition, offset) for partition in (0, 1) for offset in range(2 * ROWS)]
        assert offsets(table.refresh()) == landed

        dead = f"{table.location()}/data/dead.parquet"
        bucket, _, key = dead.removeprefix("s3://").partition("/")
        boto3.client("s3").put_object(Bucket=bucket, Key=key, Body=b"nothing refers to this")
        outcome = maintain_table(lake, lambda: spark, topic.identifier, Retention(timedelta(0)))
        assert outcome is not None
        assert (outcome.before.data_files, outcome.after.data_files) == (4, 2)
        # Too young for a procedure, which takes none of the last day, but not for what it lists with.
        assert outcome.orphans_deleted == 0
        in_an_hour = datetime.now(UTC) + timedelta(hours=1)
        assert dead in delete_orphans(spark, f"lake.{topic.identifier}", written_before=in_an_hour)
    assert offsets(table.refresh()) == landed
    assert position_of(table).next_offsets == {0: 2 * ROWS, 1: 2 * ROWS}


def hundred(first: int) -> pa.Table:
    """Return a hundred rows."""
    return pa.table({"id": range(first, first + 100)})


def ids(catalog: Catalog, name: str) -> list[int]:
    return sorted(catalog.load_table(name).scan().to_arrow()["id"].to_pylist())


def test_of_commits_at_once_no_row_is_lost_or_doubled(lake: Settings) -> None:
    catalog, name = load_catalog(lake, create=True), f"bronze.race_{uuid4().hex}"
    catalog.create_namespace_if_not_exists("bronze")
    catalog.create_table(name, hundred(0).schema, properties={"commit.retry.num-retries": "0"})
    tables = {first: catalog.load_table(name) for first in range(0, 400, 100)}

    def committed(first: int) -> range:
        try:
            tables[first].append(hundred(first))
        except CommitFailedException:
            return range(0)
        return range(first, first + 100)

    with ThreadPoolExecutor() as writers:
        won = [number for numbers in writers.map(committed, tables) for number in numbers]
    assert ids(catalog, name) == won
    assert won


@contextmanager
def lossy(to: int, statement: bytes) -> Iterator[tuple[int, list[str]]]:
    """Yield a port that leads to another, and what it loses, "reply" or "request", of such statements to come.

    The connection that lost one is closed.
    """
    losses: list[str] = []

    class Way(BaseRequestHandler):
        def handle(self) -> None:
            with suppress(OSError), socket.create_connection(("127.0.0.1", to)) as server:
                while True:
                    [source, *_], _, _ = select.select([self.request, server], [], [])
                    part = source.recv(65_536)
                    loss = losses.pop(0) if source is self.request and losses and statement in part else ""
                    if not part or loss == "request":
                        return
                    (server if source is self.request else self.request).sendall(part)
                    if loss:
                        # Its reply shows that the server has done it.
                        server.recv(65_536)
                        return

    with serving(Way) as url:
        yield int(url.rpartition(":")[2]), losses


def test_a_commit_of_spark_that_is_lost_is_never_half(settings: Settings, postgres: Postgres, database: str) -> None:
    catalog = load_catalog(settings)
    with (
        lossy(postgres.port, b"UPDATE iceberg_tables SET") as (port, losses),
        separate_session(settings.changed(catalog_uri=postgres.address(database, port)), "lossy") as spark,
    ):
        spark.sql("create namespace bronze")
        for retries in (0, 4):
            name, count = f"bronze.retried_{retries}", ROWS
            spark.sql(f"create table {name} (id bigint) tblproperties ('commit.retry.num-retries' = '{retries}')")
            spark.range(ROWS).writeTo(name).append()
            for loss in ("request", "reply", "reply"):
                # As the ingester commits: refused if its offsets are in the table by now.
                writer = (
                    spark.range(count, count + ROWS)
                    .writeTo(name)
                    .option("isolation-level", "serializable")
                    .option("validate-from-snapshot-id", str(catalog.load_table(name).current_snapshot().snapshot_id))
                )
                losses.append(loss)
                with pytest.raises(Exception, match=r"Unknown failure|UncheckedSQLException"):
                    writer.overwrite(F.col("id") >= count)
                assert losses == []
                # The same batch from the same base again: refused where it had been committed, else accepted.
                if loss == "reply":
                    with pytest.raises(Exception, match="conflicting files"):
                        writer.overwrite(F.col("id") >= count)
                else:
                    assert len(ids(catalog, name)) == count
                    writer.overwrite(F.col("id") >= count)
                count += ROWS
                assert ids(catalog, name) == [*range(count)]
                assert spark.table(name).distinct().count() == count


def test_sessions_of_a_thrift_server_share_its_connections(
    settings: Settings, postgres: Postgres, database: str, tmp_path: Path
) -> None:
    settings = settings.changed(thrift_port=free_ports(1)[0], thrift_password="thrift-secret")
    server = thrift_server.service(tmp_path / "thrift", settings)
    server.start()
    try:
        with ExitStack() as sessions:
            for number in range(200):
                cursor = sessions.enter_context(thrift.connect(settings))
                if number % 20 == 0:
                    thrift.rows(cursor, f"create table default.t{number} as select {number} as id")
                    assert thrift.rows(cursor, f"select id from default.t{number}") == [(number,)]
            assert 1 <= postgres.clients(database, "PostgreSQL JDBC") <= CLIENTS
    finally:
        server.stop()


def test_a_server_without_its_catalog_does_not_say_why(settings: Settings, tmp_path: Path) -> None:
    file = properties_file(tmp_path, f"jdbc.password = {PASSWORD}\nclients = none")
    wrong = settings.changed(catalog_properties=file, thrift_port=free_ports(1)[0], thrift_password="thrift-secret")
    server = thrift_server.service(tmp_path / "thrift", wrong)
    try:
        with pytest.raises(UserError, match=r'cannot open the catalog at jdbc:postgresql.*For input string: "none"'):
            server.start()
    finally:
        server.stop()


START = """
from python_common.config.settings import from_environment
from python_common.spark.session import LazySparkSession
LazySparkSession(from_environment())()
"""


def test_a_master_that_cannot_be_reached_is_named(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    file = settings.home / "spark.conf"
    file.write_text("spark.master spark://nowhere\n")
    name_in_environment(settings, monkeypatch)
    monkeypatch.setenv("LAKEHOUSE_SPARK_CONF", str(file))
    assert "Spark does not start on spark://nowhere (SparkException: " in run_python(START).stderr.splitlines()[-1]


def test_a_process_opens_a_second_connection_or_keeps_a_dead_one(
    settings: Settings, postgres: Postgres, database: str
) -> None:
    catalog = load_catalog(settings)
    catalog.create_namespace("bronze")
    for _ in range(20):
        assert load_catalog(settings) is catalog
        assert load_catalog(settings).namespace_exists("bronze")
    assert postgres.clients(database) == 1
    with postgres.connection() as connection, connection.cursor() as cursor:
        cursor.execute("select pg_terminate_backend(pid) from pg_stat_activity where datname = %s", (database,))
    assert catalog.namespace_exists("bronze")


@pytest.mark.parametrize(
    ("old", "new", "cause"),
    [
        ("user=lake", "user=nobody", 'password authentication failed for user "nobody"'),
        ("/lake_", "/no_lake_", 'database "no_lake_'),
        ("user=lake", "user=guest", "too many connections for database"),
    ],
)
def test_a_postgresql_that_refuses_is_reported_by_its_cause(
    settings: Settings, postgres: Postgres, database: str, old: str, new: str, cause: str
) -> None:
    with postgres.connection() as connection, connection.cursor() as cursor:
        cursor.execute(f"alter database {database} connection limit 0")
        cursor.execute("drop user if exists guest")
        cursor.execute("create user guest password %s", (PASSWORD,))
    wrong = settings.changed(catalog_uri=settings.catalog_uri.replace(old, new))
    with pytest.raises(OperationalError) as raised:
        load_catalog(wrong)
    message = str(to_user_error(raised.value, wrong))
    assert message.startswith(f"The catalog at {wrong.catalog_uri} is unavailable ({cause}"), message


@pytest.mark.parametrize(
    ("lake", "cause"), [("oauth2", "OAuthError"), ("sigv4", "ForbiddenError")], indirect=["lake"], ids=[*REST]
)
def test_a_login_that_rest_refuses_is_reported_by_its_cause(
    lake: Settings, cause: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAKE_CREDENTIAL", f"{KEY}:wrong")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    _on_server.cache_clear()
    with pytest.raises(Exception) as raised:
        load_catalog(lake).list_namespaces()
    message = str(to_user_error(raised.value, lake))
    assert message.startswith(f"The catalog at {lake.catalog_uri} is unavailable ({cause})"), message
    assert "wrong" not in message


@pytest.mark.parametrize("lake", ["oauth2"], indirect=True)
@pytest.mark.parametrize("command", ["weekly", "export run", "erase --subject shop.customer=42", "fork create mine"])
def test_a_catalog_without_views_is_reported_before_a_build(
    lake: Settings, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name_in_environment(lake, monkeypatch)
    refused = run_lakehouse(*command.split())
    assert refused.returncode == 1
    assert f"error: The catalog at {lake.catalog_uri} has no views" in refused.stderr
