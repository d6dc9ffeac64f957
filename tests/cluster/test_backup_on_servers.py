"""A lake in PostgreSQL and S3 that was saved while the ingester ran is restored into a new database, and goes on."""

import json
import secrets
import subprocess
import time
from pathlib import Path

import boto3
import pytest

from python_common.catalog.catalog import load_catalog, make_namespace
from python_common.config.settings import Settings, from_environment
from python_common.errors import UserError
from python_jobs import backup
from tests.conftest import LAKEHOUSE, run_lakehouse
from tests.support.race import IDS, ids
from tests.support.services.postgres import Postgres
from tests.support.services.weed import KEY, SECRET, TABLE_BUCKET, Weed

TOPIC = "payments"
TABLE = "bronze.payments"


def test_a_lake_on_servers_that_was_saved_while_records_came_goes_on_from_there(
    services: Settings,
    postgres: Postgres,
    properties: Path,
    weed: Weed,
    database: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lake, copy, saved = f"lake-{secrets.token_hex(4)}", f"copy-{secrets.token_hex(4)}", tmp_path / "tables.json"
    for name, value in weed.variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("LAKEHOUSE_CATALOG_URI", postgres.database(database))
    monkeypatch.setenv("LAKEHOUSE_CATALOG_PROPERTIES", str(properties))
    monkeypatch.setenv("LAKEHOUSE_WAREHOUSE", f"s3://{lake}/warehouse")
    store = boto3.client("s3")
    for bucket in (lake, copy):
        store.create_bucket(Bucket=bucket)

    done("stack", "sample-data", "--orders", "100", "--behind", TOPIC)
    with subprocess.Popen([LAKEHOUSE, "ingest", "run", TOPIC, "--follow", "--every", "1s"]) as following:
        try:
            wait_for_more_than(0, following)
            before = rows()
            # That of the topic, and ops.erasures, which a restore reads.
            assert done("backup", "save", str(saved)) == "tables saved: 2\n"
            assert mirror(lake, copy) > 0
            done("stack", "sample-data", "--orders", "100")
            wait_for_more_than(before, following)
        finally:
            following.terminate()
    # Its last batch may have begun before the last record.
    done("ingest", "run", TOPIC)
    total = rows()

    for key in keys(lake):
        store.delete_object(Bucket=lake, Key=key)
    with postgres.connection() as connection, connection.cursor() as cursor:
        cursor.execute(f"drop database {database} with (force)")
    monkeypatch.setenv("LAKEHOUSE_CATALOG_URI", postgres.database(f"{database}_restored"))
    mirror(copy, lake)
    assert done("backup", "restore", str(saved)).startswith("tables restored: 2\n")
    assert rows() == before

    done("ingest", "run", TOPIC)
    done("ingest", "verify", TOPIC, "--decoded")
    assert rows() == total


def test_a_catalog_that_takes_no_table_back_is_reported(
    weed: Weed, offline_settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {**weed.variables, "LAKE_CREDENTIAL": f"{KEY}:{SECRET}"}.items():
        monkeypatch.setenv(name, value)
    file = tmp_path / "catalog.properties"
    file.write_text("credential = env:LAKE_CREDENTIAL\nscope = catalog\n")
    file.chmod(0o600)
    catalog = load_catalog(
        offline_settings.changed(
            catalog_uri=weed.catalog, warehouse=f"s3://{TABLE_BUCKET}", catalog_properties=file, home=tmp_path
        )
    )
    make_namespace(catalog, "restored")
    catalog.create_table("restored.numbers", IDS).append(ids(0))
    backup.save(catalog, tmp_path / "tables.json")
    saved = json.loads((tmp_path / "tables.json").read_text())
    catalog.drop_table("restored.numbers")
    (tmp_path / "tables.json").write_text(json.dumps({"restored.numbers": saved["restored.numbers"]}))
    with pytest.raises(UserError, match=r"made a new table restored\.numbers instead of the one at s3://"):
        backup.restore(catalog, tmp_path / "tables.json")


def done(*arguments: str) -> str:
    finished = run_lakehouse(*arguments)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    return finished.stdout


def rows() -> int:
    catalog = load_catalog(from_environment())
    return int(catalog.load_table(TABLE).scan().count()) if catalog.table_exists(TABLE) else 0


def wait_for_more_than(count: int, following: subprocess.Popen[bytes]) -> None:
    for _ in range(300):
        assert following.poll() is None
        if rows() > count:
            return
        time.sleep(1)
    raise AssertionError(f"{TABLE} has still {count} rows")


def keys(bucket: str) -> list[str]:
    pages = boto3.client("s3").get_paginator("list_objects_v2").paginate(Bucket=bucket)
    return [entry["Key"] for page in pages for entry in page.get("Contents", [])]


def mirror(source: str, target: str) -> int:
    """Copy all objects of a bucket to another one, as `aws s3 sync` does."""
    for key in (copied := keys(source)):
        boto3.client("s3").copy_object(Bucket=target, Key=key, CopySource={"Bucket": source, "Key": key})
    return len(copied)
