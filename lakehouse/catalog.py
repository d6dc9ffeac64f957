"""The Iceberg catalog as PyIceberg sees it: the tables Spark writes, read without Spark."""

from pathlib import Path

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog

from lakehouse.errors import UserError
from lakehouse.settings import CATALOG_NAME, Settings


def load_catalog(settings: Settings, create: bool = False) -> Catalog:
    """Return the catalog; `create` makes its database first. Its name must be Spark's: the rows are keyed by it.

    Raises:
        UserError: the JDBC URL is of a kind PyIceberg has no driver for here.
    """
    prefix = "jdbc:sqlite:"
    if not settings.catalog_uri.startswith(prefix):
        raise UserError(
            "LAKEHOUSE_CATALOG_URI is not a SQLite JDBC URL",
            "Write it as jdbc:sqlite:/path/catalog.db",
        )
    path = settings.catalog_uri.removeprefix(prefix).split("?")[0]
    if create:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
    elif not Path(path).exists():
        raise UserError(
            f"There is no catalog at {path}",
            "Run `lakehouse stack up`, or correct LAKEHOUSE_CATALOG_URI",
        )
    return SqlCatalog(
        CATALOG_NAME,
        uri=f"sqlite:///{path}",
        warehouse=settings.warehouse,
        init_catalog_tables=str(create).lower(),
    )
