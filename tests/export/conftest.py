"""What the export's tests share: settings and a catalog that need no service, and the hostile rows in a table."""

from pathlib import Path

import pytest
from hostile_rows import DATASET, SCHEMA, arrow_table, hostile_rows
from pyiceberg.catalog import Catalog

from lakehouse.catalog import load_catalog
from lakehouse.settings import Settings
from python_export import source
from python_export.source import Source


@pytest.fixture
def offline_settings(tmp_path: Path) -> Settings:
    """Settings whose catalog is a file of the test and whose services do not exist."""
    return Settings(
        kafka_bootstrap_servers="127.0.0.1:1",
        schema_registry_url="http://127.0.0.1:1",
        warehouse=str(tmp_path / "warehouse"),
        catalog_uri=f"jdbc:sqlite:{tmp_path / 'catalog.db'}",
        export_root=tmp_path / "exports",
        pii_key_file=tmp_path / "pii.key",
        thrift_host="127.0.0.1",
        thrift_port=1,
        thrift_password="",
    )


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
