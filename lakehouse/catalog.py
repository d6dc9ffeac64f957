"""The Iceberg catalog as PyIceberg sees it: the tables Spark writes, read without Spark."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table
from sqlalchemy import text
from sqlalchemy.exc import IntegrityError, OperationalError

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
    path, _, options = settings.catalog_uri.removeprefix(prefix).partition("?")
    busy = re.search(r"busy_timeout=(\d+)", options)
    if create:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
    elif not Path(path).exists():
        raise UserError(
            f"There is no catalog at {path}",
            "Run `lakehouse stack up`, or correct LAKEHOUSE_CATALOG_URI",
        )
    return SqlCatalog(
        CATALOG_NAME,
        uri=f"sqlite:///{path}?timeout={int(busy[1]) / 1000 if busy else 30}",
        warehouse=settings.warehouse,
        init_catalog_tables=str(create).lower(),
    )


def make_namespace(catalog: Catalog, schema: str) -> None:
    """Create a namespace if it is missing; another process may do so at the same moment."""
    try:
        catalog.create_namespace_if_not_exists(schema)
    except IntegrityError:
        if not catalog.namespace_exists(schema):
            raise


def load_table(catalog: Catalog, identifier: str) -> Table | None:
    """Return a table, or None if there is none of this name.

    Raises:
        UserError: its metadata file is missing or damaged; it is named.
    """
    place, _, name = identifier.rpartition(".")
    query = text("select metadata_location from iceberg_tables where table_namespace = :place and table_name = :name")
    with catalog.engine.connect() as connection:
        path = connection.execute(query, {"place": place, "name": name}).scalar()
    try:
        with readable(f"{path}, the metadata of {identifier},"):
            return catalog.load_table(identifier)
    except NoSuchTableError:
        return None


@contextmanager
def readable(what: str) -> Iterator[None]:
    """Name what is read inside the block if it is damaged: its reader only knows at which byte it stumbled.

    Raises:
        UserError: it is missing or damaged.
    """
    try:
        yield
    except (NoSuchTableError, OperationalError):
        raise
    except Exception as error:  # damaged bytes make a reader fail in any way
        raise UserError(f"{what} is missing or damaged ({type(error).__name__})", "Restore it from a backup") from None


def unavailable(settings: Settings) -> UserError:
    """Return what to say when the catalog's database gave an OperationalError."""
    return UserError(
        f"The catalog at {settings.catalog_uri} is locked by another program, or cannot be written",
        "Nothing is lost: run again when it is free, or raise busy_timeout in LAKEHOUSE_CATALOG_URI",
    )
