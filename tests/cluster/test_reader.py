"""The Thrift server of docs/security.md for readers: it answers for marts, and has neither raw data nor a key."""

import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import boto3
import pyarrow as pa
import pytest
from botocore.exceptions import ClientError
from pyhive import hive

from python_common.catalog.catalog import load_catalog
from python_common.config.environment import PROJECT_ROOT, changed_environment
from python_common.config.settings import Settings
from python_common.errors import UserError
from python_common.process import free_ports
from python_common.spark import thrift
from tests.support.commands import LAKEHOUSE
from tests.support.other_engines import blocks
from tests.support.race import until
from tests.support.services.postgres import Postgres
from tests.support.services.weed import READABLE, READER_BUCKET, READER_KEY, READER_SECRET, Weed

PAGE = (PROJECT_ROOT / "docs" / "security.md").read_text().partition("## A Thrift server that only reads")[2]
PASSWORD = "reader-secret-91ab"
SALES = pa.table({"ordered_week": ["2026-W46", "2026-W46", "2026-W47"], "total_amount": [10, 20, 40]})
RAW = pa.table({"email": ["person@example.com"]})
DENIED = "AccessDenied|Access Denied|403"
RESTRICTED = ("bronze", "staging", "deduplicated", "masked", "joined", "ops")


@pytest.fixture
def lake(settings: Settings, weed: Weed) -> Iterator[Settings]:
    """A lake in S3 with a mart, an export, and restricted tables."""
    lake = settings.changed(warehouse=f"s3://{READER_BUCKET}/warehouse")
    with changed_environment(weed.variables):
        s3 = boto3.client("s3")
        with suppress(s3.exceptions.BucketAlreadyOwnedByYou, s3.exceptions.BucketAlreadyExists):
            s3.create_bucket(Bucket=READER_BUCKET)
        catalog = load_catalog(lake, create=True)
        catalog.create_namespace("default")
        for schema in (*READABLE, *RESTRICTED):
            catalog.create_namespace(schema)
            rows = RAW if schema in RESTRICTED else SALES
            catalog.create_table(f"{schema}.rows", rows.schema).append(rows)
        yield lake


@pytest.fixture
def reader(lake: Settings, postgres: Postgres, weed: Weed, database: str, tmp_path: Path) -> Iterator[Settings]:
    """Settings of the running server, whose environment is that of the page."""
    with postgres.connection(database) as connection, connection.cursor() as cursor:
        [role] = blocks(PAGE, "sql")
        cursor.execute(role.replace("'PASSWORD'", f"'{PASSWORD}'"))
    properties = tmp_path / "reader.properties"
    properties.write_text(f"jdbc.password = {PASSWORD}\n")
    properties.chmod(0o600)
    [port] = free_ports(1)
    values = {
        "LAKEHOUSE_HOME": str(tmp_path / "reader"),
        "LAKEHOUSE_CATALOG_URI": lake.catalog_uri.replace("user=lake", "user=reader"),
        "LAKEHOUSE_CATALOG_PROPERTIES": str(properties),
        "LAKEHOUSE_WAREHOUSE": lake.warehouse,
        "LAKEHOUSE_THRIFT_PORT": str(port),
        "LAKEHOUSE_THRIFT_PASSWORD": "thrift-secret-02bd",
        "AWS_ACCESS_KEY_ID": READER_KEY,
        "AWS_SECRET_ACCESS_KEY": READER_SECRET,
        "AWS_REGION": "us-east-1",
    }
    [variables] = blocks(PAGE, "ini")
    env = dict(line.strip().split("=", 1) for line in variables.splitlines()) | values
    assert env.keys() - values.keys() == {"KAFKA_BOOTSTRAP_SERVERS", "SCHEMA_REGISTRY_URL"}
    inherited = {name: os.environ[name] for name in ("PATH", "HOME", "JAVA_HOME", "PYTHONPATH") if name in os.environ}
    env = {**inherited, **env, "AWS_ENDPOINT_URL_S3": weed.s3}
    settings = lake.changed(thrift_port=port, thrift_password="thrift-secret-02bd", home=tmp_path / "reader")
    with subprocess.Popen([LAKEHOUSE, "thrift"], env=env, cwd=tmp_path) as server:
        try:
            until(lambda: answers(settings) or server.poll() is not None, 120)
            yield settings
        finally:
            server.terminate()


def answers(settings: Settings) -> bool:
    try:
        with thrift.connect(settings) as cursor:
            return thrift.rows(cursor, "select 1") == [(1,)]
    except UserError:
        return False


def test_a_server_for_readers_reads_marts_and_nothing_else(
    lake: Settings, reader: Settings, postgres: Postgres
) -> None:
    catalog = load_catalog(lake)
    names = [f"{schema}.rows" for schema in (*READABLE, *RESTRICTED)]
    before = [catalog.load_table(name).metadata_location for name in names]
    with thrift.connect(reader) as cursor:
        for schema in READABLE:
            sums = "select ordered_week, sum(total_amount) from {} group by ordered_week order by ordered_week"
            assert thrift.rows(cursor, sums.format(f"{schema}.rows")) == [("2026-W46", 30), ("2026-W47", 40)]
            assert [row[1] for row in thrift.rows(cursor, f"show tables in {schema}")] == ["rows"]
        for schema in RESTRICTED:
            assert thrift.rows(cursor, f"show tables in {schema}") == []
            assert_refused(cursor, f"select * from {schema}.rows", "TABLE_OR_VIEW_NOT_FOUND")
        for sql, refusal in (
            ("insert into marts.rows values ('2026-W48', 1)", DENIED),
            ("delete from marts.rows where true", f"{DENIED}|permission denied"),
            ("create table marts.other (id int)", DENIED),
            ("alter table marts.rows set tblproperties ('a' = 'b')", DENIED),
            ("drop table marts.rows", "permission denied for table iceberg_tables"),
            ("create namespace lake.other", "permission denied for table iceberg_namespace_properties"),
        ):
            assert_refused(cursor, sql, refusal)
        for table in ("pii_key", "pii_pads"):
            assert_refused(cursor, f"select * from spark_catalog.default.{table}", "TABLE_OR_VIEW_NOT_FOUND")
        key = thrift.rows(cursor, "select java_method('java.lang.System', 'getenv', 'LAKEHOUSE_PII_KEY_FILE')")
        assert key == [("null",)]
    assert [catalog.load_table(name).metadata_location for name in names] == before


def test_keys_of_a_reader_get_files_of_public_schemas_alone(lake: Settings) -> None:
    s3 = boto3.client("s3", aws_access_key_id=READER_KEY, aws_secret_access_key=READER_SECRET)
    for schema in (*READABLE, *RESTRICTED):
        [task] = load_catalog(lake).load_table(f"{schema}.rows").scan().plan_files()
        bucket, _, key = task.file.file_path.removeprefix("s3://").partition("/")
        if schema in READABLE:
            assert s3.head_object(Bucket=bucket, Key=key)["ContentLength"]
        else:
            with pytest.raises(ClientError, match="403"):
                s3.head_object(Bucket=bucket, Key=key)


def assert_refused(cursor: hive.Cursor, sql: str, refusal: str) -> None:
    with pytest.raises(hive.OperationalError) as error:
        thrift.rows(cursor, sql)
    assert re.search(refusal, str(error.value)), sql
