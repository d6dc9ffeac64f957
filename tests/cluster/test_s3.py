"""A lake whose warehouse is in S3, its catalog in a PostgreSQL or behind REST, as Spark and Python share it."""

import secrets
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import boto3
import pytest
from pyiceberg.table import Table
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from python_common.catalog.catalog import load_catalog
from python_common.config.settings import Settings
from python_common.process import free_ports
from python_export.csv.compare import verify
from python_export.csv.facts import measure
from python_export.csv.write import write
from python_export.datasets.snapshot import Source
from python_ingest.bronze import tables
from python_ingest.bronze.commit import BatchMetadata, CommitConflict, overwrite
from python_ingest.bronze.positions import Position, position_of
from python_ingest.declare.topics import Declaration
from python_ingest.kafka.offset_range import OffsetRange
from python_ingest.maintenance.maintain import Retention, maintain_table
from python_ingest.maintenance.purge import delete_orphans
from tests.support.hostile_rows import DATASET, SCHEMA, arrow_table, current_source, hostile_rows
from tests.support.services.postgres import Postgres
from tests.support.services.spark_jvm import separate_session
from tests.support.services.weed import KEY, SECRET, TABLE_BUCKET, Weed

ORDERS = Declaration("shop.orders", "bronze", "orders", "string", "dead_letter")
ROWS = 50


@pytest.fixture(scope="module")
def lake(
    postgres: Postgres, properties: Path, weed: Weed, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Settings]:
    """Settings of a lake in a separate bucket; the process has the keys."""
    bucket = f"lake-{secrets.token_hex(4)}"
    directory = tmp_path_factory.mktemp("lake")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in weed.variables.items():
            patch.setenv(name, value)
        boto3.client("s3").create_bucket(Bucket=bucket)
        yield Settings(
            kafka_bootstrap_servers="127.0.0.1:1",
            schema_registry_url="http://127.0.0.1:1",
            warehouse=f"s3://{bucket}/warehouse",
            catalog_uri=postgres.database("lake_in_s3"),
            catalog_properties=properties,
            home=directory / "home",
            thrift_port=free_ports(1)[0],
            thrift_password="thrift-secret-c2d8",
        )


@pytest.fixture(scope="module")
def hostile_source(lake: Settings) -> Source:
    """The hostile rows in a table of the lake, as Python writes them."""
    catalog = load_catalog(lake, create=True)
    catalog.create_namespace_if_not_exists("shop")
    catalog.create_table("shop.exp_weekly__events", SCHEMA).append(arrow_table(hostile_rows()))
    source = current_source(catalog, DATASET)
    assert source is not None
    return source


@pytest.fixture(scope="module")
def rest_lake(lake: Settings, weed: Weed, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """Settings of a lake behind REST, in a bucket of that catalog."""
    file = tmp_path_factory.mktemp("rest") / "catalog.properties"
    file.write_text(f"credential = {KEY}:{SECRET}\nscope = catalog\n")
    file.chmod(0o600)
    return lake.changed(catalog_uri=weed.catalog, warehouse=f"s3://{TABLE_BUCKET}", catalog_properties=file)


@pytest.fixture(scope="module", params=["lake", "rest_lake"])
def settings(request: pytest.FixtureRequest) -> Settings:
    return request.getfixturevalue(request.param)


@pytest.fixture(scope="module")
def spark(settings: Settings) -> Iterator[SparkSession]:
    """A session with this lake, and the keys of its store."""
    with separate_session(settings, "s3-tests") as spark:
        yield spark


def land(spark: SparkSession, base: Position, start: int) -> None:
    """Commit a batch of two partitions as the ingester does, planned from a base."""
    batch = base.last_batch + 1
    known = {
        "kafka_topic": F.lit(ORDERS.topic),
        "kafka_partition": F.expr("cast(id % 2 as int)"),
        "kafka_offset": F.expr(f"{start} + id div 2"),
        "ingest_batch": F.lit(batch),
        "ingested_at": F.lit(datetime(2026, 11, 16, tzinfo=UTC)),
        "kafka_key": F.expr("cast(id as string)"),
    }
    fields = spark.table(f"lake.{ORDERS.identifier}").schema.fields
    rows = spark.range(0, 2 * ROWS, 1, 1).select(
        *(known.get(field.name, F.lit(None)).cast(field.dataType).alias(field.name) for field in fields)
    )
    ranges = tuple(OffsetRange(partition, start, start + ROWS) for partition in (0, 1))
    metadata = BatchMetadata(
        "test", batch, ranges, {offset_range.partition: offset_range.until for offset_range in ranges}, ()
    )
    overwrite(rows, ORDERS.identifier, base, metadata)


def offsets(table: Table) -> list[tuple[int, int]]:
    """Return partition and offset of every row, as PyIceberg reads them."""
    rows = table.scan(selected_fields=("kafka_partition", "kafka_offset")).to_arrow().to_pylist()
    return sorted((row["kafka_partition"], row["kafka_offset"]) for row in rows)


def test_batches_are_taken_once_and_stay_when_the_table_is_maintained(settings: Settings, spark: SparkSession) -> None:
    catalog = load_catalog(settings, create=True)
    catalog.create_namespace_if_not_exists(ORDERS.schema)
    table = tables.create(catalog, ORDERS)
    assert table is not None
    for count in range(2):
        base = position_of(table.refresh())
        assert base.next_offsets == ({0: ROWS * count, 1: ROWS * count} if count else {})
        land(spark, base, ROWS * count)
        # A second ingester that was as far: whatever it has to add, it comes too late.
        with pytest.raises(CommitConflict):
            land(spark, base, ROWS * count)
    landed = [(partition, offset) for partition in (0, 1) for offset in range(2 * ROWS)]
    assert offsets(table.refresh()) == landed

    dead = f"{table.location()}/data/dead.parquet"
    bucket, _, key = dead.removeprefix("s3://").partition("/")
    boto3.client("s3").put_object(Bucket=bucket, Key=key, Body=b"nothing refers to this")
    outcome = maintain_table(settings, lambda: spark, ORDERS.identifier, Retention(timedelta(0)))
    assert outcome is not None
    assert (outcome.before.data_files, outcome.after.data_files) == (4, 2)
    # Too young for a procedure, which takes none of the last day, but not for what it lists with.
    assert outcome.orphans_deleted == 0
    in_an_hour = datetime.now(UTC) + timedelta(hours=1)
    assert dead in delete_orphans(spark, f"lake.{ORDERS.identifier}", written_before=in_an_hour)
    assert offsets(table.refresh()) == landed
    assert position_of(table).next_offsets == {0: 2 * ROWS, 1: 2 * ROWS}


def test_a_file_of_a_table_in_s3_is_not_the_table(hostile_source: Source, tmp_path: Path) -> None:
    write(hostile_source, tmp_path / "events.csv", tmp_path / "scratch", bom=True)
    verify(tmp_path / "events.csv", hostile_source, tmp_path / "scratch")
    assert measure(hostile_source, tmp_path / "scratch").rows == len(hostile_rows())
