"""What the export's tests share: settings and a catalog without a service, hostile rows in a table, both targets."""

import logging
import secrets
import threading
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import boto3
import pytest
from hostile_rows import DATASET, SCHEMA, arrow_table, hostile_rows
from moto.server import ThreadedMotoServer
from pyiceberg.catalog import Catalog

from lakehouse.catalog import load_catalog
from lakehouse.settings import Settings
from python_export import source
from python_export.source import Source
from python_export.target import Target, open_target


@pytest.fixture
def catalog(offline_settings: Settings) -> Catalog:
    catalog = load_catalog(offline_settings, create=True)
    catalog.create_namespace("shop")
    return catalog


@pytest.fixture
def hostile_source(catalog: Catalog) -> Source:
    """The hostile rows in an Iceberg table."""
    table = catalog.create_table(("shop", "exp_weekly__events"), SCHEMA)
    table.append(arrow_table(hostile_rows()))
    found = source.find(catalog, DATASET)
    assert found is not None
    return found


@pytest.fixture(scope="session")
def s3_server() -> Iterator[str]:
    """The address of a server that speaks S3."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    server.start()
    application, one_at_a_time = server._server.app, threading.Lock()

    def serve(*request: Any) -> Iterable[bytes]:
        # moto looks for an object and then writes it, with no lock: of two writers at once both might find none.
        with one_at_a_time:
            return application(*request)

    server._server.app = serve
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def s3_settings(s3_server: str, offline_settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Settings that publish to an empty bucket."""
    for name, value in {
        "AWS_ENDPOINT_URL_S3": s3_server,
        "AWS_ACCESS_KEY_ID": "analyst",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_DEFAULT_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(name, value)
    bucket = f"exports-{secrets.token_hex(4)}"
    boto3.client("s3").create_bucket(Bucket=bucket)
    return replace(offline_settings, export_root=f"s3://{bucket}/weekly/files")


@pytest.fixture(params=["local", "s3"])
def published_to(request: pytest.FixtureRequest, offline_settings: Settings) -> Settings:
    """Settings of each kind of target."""
    return request.getfixturevalue("s3_settings") if request.param == "s3" else offline_settings


@pytest.fixture
def target(published_to: Settings) -> Target:
    return open_target(published_to)
