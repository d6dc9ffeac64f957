"""A REST catalog behind OAuth2, with its tables in S3: commits, refusals, and what is said where it is away."""

import json
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pyarrow as pa
import pytest
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from lakehouse.catalog import load_catalog, load_table
from lakehouse.errors import UserError
from lakehouse.failure import as_user_error
from lakehouse.process import Service, free_ports
from lakehouse.settings import Settings
from python_ingest.landing import tables
from python_ingest.topics import Declaration

IDS = Schema(NestedField(1, "id", LongType(), required=False))
KEY, SECRET = "lake-key", "rest-secret-8e02"
BUCKET = "lakeb"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The addresses of S3 and of the catalog of a SeaweedFS."""
    directory = tmp_path_factory.mktemp("weed")
    identity = {
        "name": "lake",
        "credentials": [{"accessKey": KEY, "secretKey": SECRET}],
        "actions": ["Admin", "Read", "Write", "List", "Tagging"],
    }
    (directory / "identities.json").write_text(json.dumps({"identities": [identity]}))
    names = ["s3.port", "s3.port.iceberg", "s3.port.lance", "s3.port.grpc"]
    names += [f"{name}.port{kind}" for name in ("master", "volume", "filer", "admin") for kind in ("", ".grpc")]
    ports = free_ports(len(names))
    options = [f"-{name}={port}" for name, port in zip(names, ports, strict=True)]
    urls = {"s3": f"http://127.0.0.1:{ports[0]}", "catalog": f"http://127.0.0.1:{ports[1]}"}
    service = Service(
        name="weed",
        directory=directory,
        command=lambda: [
            str(Path(sys.executable).with_name("weed")),
            *("mini", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-dir=.", "-admin.ui=false", "-webdav=false"),
            *(f"-tableBucket={BUCKET}", "-s3.config=identities.json", *options),
        ],
        ports={"S3": ports[0]},
        answers=lambda: answers(urls["catalog"]),
    )
    service.start()
    yield urls
    process = service.process()
    assert process
    process.kill()
    service.stop()


def answers(address: str) -> bool:
    """Tell whether the catalog gives tokens, and has its bucket, which it makes a moment later."""
    login = {"grant_type": "client_credentials", "client_id": KEY, "client_secret": SECRET, "scope": "catalog"}
    try:
        token = httpx2.post(f"{address}/v1/oauth/tokens", data=login).json()["access_token"]
        headers = {"Authorization": f"Bearer {token}"}
        return httpx2.get(f"{address}/v1/{BUCKET}/namespaces", headers=headers).status_code == 200
    except (httpx2.HTTPError, ValueError, KeyError):
        return False


@pytest.fixture
def settings(
    server: dict[str, str], offline_settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Settings:
    """Settings of the catalog behind REST: its credential is a variable, the store's are AWS's."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", server["s3"])
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("LAKE_CREDENTIAL", f"{KEY}:{SECRET}")
    return offline_settings.changed(
        catalog_uri=server["catalog"],
        warehouse=f"s3://{BUCKET}",
        catalog_properties=properties(tmp_path, "credential = env:LAKE_CREDENTIAL"),
    )


def properties(directory: Path, line: str) -> Path:
    path = directory / "catalog.properties"
    path.write_text(f"{line}\nscope = catalog\n")
    path.chmod(0o600)
    return path


def ids(first: int) -> pa.Table:
    return pa.table({"id": list(range(first, first + 100))})


def test_a_table_is_made_where_the_server_says_and_read_again(settings: Settings) -> None:
    catalog = load_catalog(settings)
    catalog.create_namespace_if_not_exists("bronze")
    made = tables.create(catalog, Declaration("shop.orders", "bronze", "orders", "string", "dead_letter"))
    assert made is not None
    assert made.location().startswith(f"s3://{BUCKET}")
    found = load_table(catalog, "bronze.orders")
    assert found is not None
    assert found.metadata.table_uuid == made.metadata.table_uuid
    assert load_table(catalog, "bronze.other") is None


def test_of_commits_at_once_no_row_is_lost_or_doubled(settings: Settings) -> None:
    catalog = load_catalog(settings)
    catalog.create_namespace_if_not_exists("bronze")
    catalog.create_table("bronze.race", IDS, properties={"commit.retry.num-retries": "0"})
    loaded = [catalog.load_table("bronze.race") for _ in range(4)]
    won = []

    def append(number: int) -> None:
        try:
            loaded[number].append(ids(100 * number))
            won.append(number)
        except CommitFailedException:
            pass

    threads = [threading.Thread(target=append, args=(number,)) for number in range(len(loaded))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = catalog.load_table("bronze.race").scan().to_arrow()["id"].to_pylist()
    assert won
    assert sorted(found) == sorted(one for number in won for one in ids(100 * number)["id"].to_pylist())


def test_a_catalog_that_refuses_the_login_is_told_by_its_cause(settings: Settings, tmp_path: Path) -> None:
    wrong = settings.changed(catalog_properties=properties(tmp_path, f"credential = {KEY}:wrong"))
    with pytest.raises(Exception) as raised:
        load_catalog(wrong)
    said = str(as_user_error(raised.value, wrong))
    assert said.startswith(f"The catalog at {wrong.catalog_uri} does not answer or refuses (OAuthError)"), said
    assert "wrong" not in said


def test_a_store_that_is_away_is_not_called_damaged(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    catalog = load_catalog(settings)
    catalog.create_namespace_if_not_exists("bronze")
    catalog.create_table("bronze.away", IDS).append(ids(0))
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:1")
    away = load_catalog(settings)
    assert away is not catalog
    table = load_table(away, "bronze.away")
    assert table is not None
    with pytest.raises(OSError) as raised:
        table.scan().to_arrow()
    said = as_user_error(raised.value, settings)
    assert isinstance(said, UserError)
    assert "cannot be used (AWS Error" in str(said)
