"""The Iceberg catalog as PyIceberg sees it: the tables Spark writes, read without Spark."""

import errno
import re
import traceback
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache, lru_cache
from pathlib import Path
from threading import Lock

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.catalog.sql import IcebergTables, SqlCatalog
from pyiceberg.exceptions import NoSuchTableError, NoSuchViewError, RESTError, ValidationError
from pyiceberg.table import StagedTable, Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot, ancestors_of
from pyiceberg.table.update import TableRequirement, TableUpdate
from pyiceberg.typedef import Identifier
from requests import RequestException
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError, IntegrityError, OperationalError, ProgrammingError

from python_common.catalog.catalog_properties import Kind, for_python, kind
from python_common.catalog.commits import refuse_backward_times
from python_common.config.settings import CATALOG_NAME, Settings
from python_common.errors import UserError

# The cause in PyArrow's message of an object store's error, which has no number.
STORE_ERROR = re.compile(r"AWS Error \w+")
STORE_REMEDY = (
    "Nothing is lost: check that its store answers, this user's rights and limits (open files, room), and run again"
)
# Errors of the readers of Parquet, Avro and JSON for damaged or missing files.
DAMAGE = (ValueError, LookupError, EOFError, OSError, SystemError, zlib.error, ValidationError)
DAMAGED_DATABASE = ("SQLITE_CORRUPT", "SQLITE_NOTADB")
# Snapshots of all tables whose metadata is in memory.
MOST_SNAPSHOTS = 100_000
DENIED = ("InsufficientPrivilege",)
# Codes of PostgreSQL for the second of two processes that create the catalog's tables: the table or its type exists.
ALREADY_EXISTS = ("42P07", "23505")
# libpq's message without a connection, which has no code and names host, user and database alone.
NO_CONNECTION = re.compile(r"(?:connection to server .* failed: (?:FATAL: +)?|(?=could not translate host name ))(.+)")


class OrderedCatalog(SqlCatalog):
    """A catalog in a database that reads a metadata file once, for one never changes.

    It writes no metadata in which time goes back: Iceberg's Java cannot read it.
    """

    def __init__(self, name: str, **properties: str) -> None:
        super().__init__(name, **properties)
        # By the table's name, with the path of its file; the one loaded last is at the end.
        self._metadata: dict[tuple[str, str], tuple[str, TableMetadata]] = {}
        self._lock = Lock()

    def _convert_orm_to_iceberg(self, orm_table: IcebergTables) -> Table:
        name, location = (orm_table.table_namespace, orm_table.table_name), orm_table.metadata_location
        with self._lock:
            read_from, metadata = self._metadata.get(name, (None, None))
        if metadata is None or location is None or read_from != location:
            table = super()._convert_orm_to_iceberg(orm_table)
        else:
            identifier = (*self.identifier_to_tuple(name[0]), name[1])
            table = Table(identifier, metadata, location, self._load_file_io(metadata.properties, location), self)
        with self._lock:
            self._metadata.pop(name, None)
            self._metadata[name] = table.metadata_location, table.metadata
            snapshots = sum(len(of_table.snapshots) for _, of_table in self._metadata.values())
            while snapshots > MOST_SNAPSHOTS and len(self._metadata) > 1:
                _, oldest = self._metadata.pop(next(iter(self._metadata)))
                snapshots -= len(oldest.snapshots)
        return table

    def _update_and_stage_table(
        self,
        current_table: Table | None,
        table_identifier: Identifier,
        requirements: tuple[TableRequirement, ...],
        updates: tuple[TableUpdate, ...],
    ) -> StagedTable:
        staged = super()._update_and_stage_table(current_table, table_identifier, requirements, updates)
        if current_table is not None:
            refuse_backward_times(".".join(table_identifier), current_table.metadata, staged.metadata)
        return staged


def load_catalog(settings: Settings, create: bool = False) -> Catalog:
    """Return the catalog; `create` makes its database first. Its name must be Spark's: the rows are keyed by it.

    The process has one catalog per server or file, with its connections; that of a server creates missing tables.

    Raises:
        UserError: the catalog is missing, or its address is invalid.
    """
    if kind(settings) is not Kind.SQLITE:
        return _on_server(kind(settings), frozenset(for_python(settings).items()))
    path, _, options = settings.catalog_uri.removeprefix(Kind.SQLITE.value).partition("?")
    busy = re.search(r"busy_timeout=(\d+)", options)
    if create:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
    elif not Path(path).exists():
        raise UserError(f"The catalog {path} is missing", "Run `lakehouse stack up`, or correct LAKEHOUSE_CATALOG_URI")
    of_file = {
        "uri": f"sqlite:///{path}?timeout={int(busy[1]) / 1000 if busy else 30}",
        "init_catalog_tables": str(create).lower(),
    }
    properties = frozenset({**for_python(settings), **of_file}.items())
    # A file of the same name may be made later: that is another catalog.
    if not Path(path).exists():
        return OrderedCatalog(CATALOG_NAME, **dict(properties))
    return _in_file(properties, Path(path).stat().st_ino)


@lru_cache(maxsize=4)
def _in_file(properties: frozenset[tuple[str, str]], inode: int) -> Catalog:
    return OrderedCatalog(CATALOG_NAME, **dict(properties))


@cache
def _on_server(kind: Kind, properties: frozenset[tuple[str, str]]) -> Catalog:
    if kind is Kind.REST:
        return RestCatalog(CATALOG_NAME, **dict(properties))
    try:
        return OrderedCatalog(CATALOG_NAME, **dict(properties))
    except (IntegrityError, ProgrammingError) as error:
        if getattr(error.orig, "pgcode", None) in ALREADY_EXISTS:
            return OrderedCatalog(CATALOG_NAME, **dict(properties))
        if is_unavailable(error) or isinstance(error, IntegrityError):
            raise
        # The message names the address alone: no table has been read.
        message = str(error.orig).partition("\n")[0]
        raise UserError(f"Invalid PostgreSQL URL ({message})", "Correct LAKEHOUSE_CATALOG_URI") from None


def require_views(catalog: Catalog, settings: Settings) -> None:
    """Raise a UserError if models are views and the catalog has no views. One in a database has."""
    if not isinstance(catalog, RestCatalog):
        return
    try:
        # The view need not exist: a server without views raises another error.
        with suppress(NoSuchViewError):
            catalog.load_view("default.any")
    except NotImplementedError:
        raise UserError(
            f"The catalog at {settings.catalog_uri} has no views, and dbt's view layers are views",
            "Use a catalog that has views: see docs/deploy.md, which catalog",
        ) from None


def location(catalog: Catalog, schema: str, table: str) -> str | None:
    """Return the location of a new table; None where the catalog's server decides."""
    if not isinstance(catalog, SqlCatalog):
        return None
    return f"{catalog.properties['warehouse'].rstrip('/')}/{schema}/{table}"


def make_namespace(catalog: Catalog, schema: str) -> None:
    """Create a namespace if it is missing; another process may do so at the same moment."""
    try:
        catalog.create_namespace_if_not_exists(schema)
    except IntegrityError:
        if not catalog.namespace_exists(schema):
            raise


def load_table(catalog: Catalog, identifier: str) -> Table | None:
    """Return a table, or None if it does not exist; a UserError names metadata that is missing or damaged."""
    try:
        return catalog.load_table(identifier)
    except NoSuchTableError:
        return None
    except Exception:
        with translate_read_errors(f"{_metadata_of(catalog, identifier)},"):
            raise


def table_names(catalog: Catalog) -> list[str]:
    """Return the names of all tables, sorted: PyIceberg lists namespaces in another order in each process."""
    names = [name for space in catalog.list_namespaces() for name in catalog.list_tables(space)]
    return [".".join(name) for name in sorted(names)]


def history(table: Table) -> Iterator[tuple[Snapshot, dict[str, str]]]:
    """Yield the snapshots that a table's current one comes from, itself first, with the entries of their summaries."""
    for snapshot in ancestors_of(table.current_snapshot(), table.metadata):
        yield snapshot, snapshot.summary.additional_properties if snapshot.summary else {}


def existing_columns(table: Table, names: Iterable[str]) -> tuple[str, ...]:
    """Return those columns that a table has, a nested field by its path: one of release 0.5 has no kafka_generation."""
    existing = []
    for name in dict.fromkeys(names):
        with suppress(ValueError):
            table.schema().find_field(name)
            existing.append(name)
    return tuple(existing)


def read_batches(
    table: Table, where: str, names: tuple[str, ...], limit: int | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield columns of the rows that meet a condition; a UserError if a file is missing or damaged."""
    with translate_read_errors(f"A file of {'.'.join(table.name())}"):
        for batch in table.scan(where, selected_fields=names, limit=limit).to_arrow_batch_reader():
            # Parquet's reader takes any bytes for text.
            batch.validate(full=True)
            yield batch


def _metadata_of(catalog: Catalog, identifier: str) -> str:
    """Name a table's metadata by its path, if it is known: the file may be what is damaged."""
    what = f"the metadata of {identifier}"
    if not isinstance(catalog, SqlCatalog):
        return what
    namespace, _, name = identifier.rpartition(".")
    query = text(
        "select metadata_location from iceberg_tables"
        " where catalog_name = :catalog and table_namespace = :namespace and table_name = :name"
    )
    with catalog.engine.connect() as connection:
        row = {"catalog": catalog.name, "namespace": namespace, "name": name}
        return f"{connection.execute(query, row).scalar()}, {what}"


@contextmanager
def translate_read_errors(what: str) -> Iterator[None]:
    """Name what is read inside the block in the error of a reader, which knows the byte alone.

    Errors that damaged bytes do not cause, such as a lack of memory, pass.

    Raises:
        UserError: `what` is missing or damaged, or its store cannot be reached.
    """
    try:
        yield
    except (*DAMAGE, TypeError) as error:
        if _is_of_catalog(error) or _is_mistake(error):
            raise
        if is_unavailable(error):
            raise UserError(f"{what} cannot be read ({_cause(error)})", STORE_REMEDY) from None
        raise UserError(f"{what} is missing or damaged ({type(error).__name__})", "Restore it from a backup") from None


def _is_mistake(error: Exception) -> bool:
    """Return whether a TypeError is a bug: PyIceberg raises one for a damaged schema in Avro."""
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    return isinstance(error, TypeError) and not frame.f_globals["__name__"].startswith("pyiceberg.")


def is_unavailable(error: BaseException) -> bool:
    """Return whether the catalog or a store of files does not answer, or refuses: for rights, load or a limit.

    A missing or damaged file does not count.
    """
    if _is_of_catalog(error):
        return True
    if not isinstance(error, OSError) or isinstance(error, FileNotFoundError):
        return False
    # PyArrow makes an OSError of damaged Parquet too: one without a number, and of no store.
    known = error.errno is not None or isinstance(error, PermissionError | ConnectionError | TimeoutError)
    return known or STORE_ERROR.search(str(error)) is not None


def unavailable(settings: Settings, error: BaseException) -> UserError:
    """Translate an error that `is_unavailable`; of the error only its kind is quoted."""
    cause = _cause(error)
    if not _is_of_catalog(error):
        return UserError(f"A file or its store cannot be used ({cause})", STORE_REMEDY)
    catalog = f"The catalog at {settings.catalog_uri}"
    if cause.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return UserError(
            f"{catalog} is locked by another program",
            "Nothing is lost: run again when it is free, or raise busy_timeout in LAKEHOUSE_CATALOG_URI",
        )
    if cause in DAMAGED_DATABASE:
        return UserError(f"{catalog} is damaged ({cause})", "Restore it from a backup")
    if kind(settings) is Kind.SQLITE:
        check = "LAKEHOUSE_CATALOG_URI, this user's rights and the room on its disk"
    else:
        check = "LAKEHOUSE_CATALOG_URI, that its server runs, and user, password or token"
    return UserError(f"{catalog} is unavailable ({cause})", f"Nothing is lost: check {check}, and run again")


def _is_of_catalog(error: BaseException) -> bool:
    # Not all errors of the database: a wrong statement is a bug.
    of_database = isinstance(error, DBAPIError) and _cause(error) in (*DAMAGED_DATABASE, *DENIED)
    return of_database or isinstance(error, OperationalError | RESTError | RequestException)


def _cause(error: BaseException) -> str:
    """Name an error without its message."""
    if isinstance(error, DBAPIError):
        if match := NO_CONNECTION.match(str(error.orig)):
            return match[1]
        return str(getattr(error.orig, "sqlite_errorname", type(error.orig).__name__))
    if isinstance(error, OSError):
        if error.errno is not None:
            return errno.errorcode.get(error.errno, str(error.errno))
        if match := STORE_ERROR.search(str(error)):
            return match[0]
    return type(error).__name__
