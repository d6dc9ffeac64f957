"""What the export's tests share: settings and a catalog that need no service, and the hostile rows in a table."""

import pytest
from hostile_rows import DATASET, SCHEMA, arrow_table, hostile_rows
from pyiceberg.catalog import Catalog

from lakehouse.catalog import load_catalog
from lakehouse.settings import Settings
from python_export import source
from python_export.source import Source


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
