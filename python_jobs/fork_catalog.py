"""A fork of a lake: new metadata files, in a separate catalog, which name the data files of production.

No data is copied. Production's snapshots are tagged first, for as long as the fork may live, so that its maintenance
keeps what the fork reads; besides the lease of `create`, the tags are all that changes there. The metadata of a fork
refuses to delete files that it did not write: `gc.enabled` is false, and its log of older metadata files, which commits
delete, is empty.

The fork's catalog has all tables twice. Under the name `lake` they can be changed; under `base` they stay what
production was at the moment of the fork, and triggers refuse changes.
"""

import gzip
import json
import sqlite3
from collections.abc import Collection
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io import load_file_io
from sqlalchemy import text

from python_common.catalog import catalog_properties, commits, property_keys
from python_common.catalog.catalog import table_names, translate_read_errors
from python_common.config.settings import CATALOG_NAME, Settings
from python_common.errors import UserError

BASE_CATALOG = "base"
TAG_PREFIX = "fork_"
# How often the tables of a catalog behind REST are listed before they agree.
LISTINGS = 10
# Paths that a table of production writes to, and the fork of it must not.
PATHS = ("write.data.path", "write.metadata.path", "write.object-storage.path", "write.folder-storage.path")
READ_ONLY = """
create trigger {table}_{event} before {event} on {table} when {row}.catalog_name = '{base}'
begin select raise(abort, '{base} is read only'); end;
"""

Row = tuple[str, str, str, str]
"""Namespace, name and metadata file, or its text, of a table or view, and which of both it is."""


def store_properties(settings: Settings) -> dict[str, str]:
    """Return the catalog properties by which a fork, itself in local files, reads the store of its lake."""
    if catalog_properties.kind(settings) is not catalog_properties.Kind.REST and not settings.warehouse.startswith(
        "s3://"
    ):
        return {}
    properties = {**catalog_properties.of_store(settings), **catalog_properties.of_file(settings)}
    store = {name: value for name, value in properties.items() if name.startswith(("s3.", "client."))}
    # Its class is chosen by the scheme of each path.
    return {**store, "io-impl": "org.apache.iceberg.io.ResolvingFileIO"}


def tag(catalog: Catalog, tag: str, lives: timedelta) -> None:
    """Tag the current snapshot of every table for a fork; maintenance drops the tags when the fork has expired."""
    for identifier in table_names(catalog):
        commits.tag(catalog, identifier, tag, age_ms=int(lives.total_seconds() * 1000))


def untag(catalog: Catalog, tag: str) -> None:
    """Remove the tags of a fork."""
    for identifier in table_names(catalog):
        commits.remove_tag(catalog, identifier, tag)


def tags(catalog: Catalog) -> list[str]:
    """Return the tags of forks that are in a table."""
    refs = {ref for name in table_names(catalog) for ref in catalog.load_table(name).refs()}
    return sorted(ref for ref in refs if ref.startswith(TAG_PREFIX))


def write(catalog: Catalog, tag: str, draft: Path, directory: Path, emptied: Collection[str]) -> None:
    """Write a fork of what is tagged into the directory `draft`, which the caller renames to `directory`.

    Tables in `emptied` have no rows in the fork.

    Raises:
        UserError: a metadata file is missing or damaged.
    """
    rows = []
    for space, table, location, kind in _rows(catalog):
        metadata = _read(catalog, location)
        if kind == "TABLE":
            metadata = _table(metadata, tag if f"{space}.{table}" not in emptied else "")
            metadata["properties"][property_keys.FORK_OF] = location
        metadata |= {f"{kind.lower()}-uuid": str(uuid4()), "location": f"{directory}/warehouse/{space}/{table}"}
        file = Path("warehouse", space, table, "metadata", f"00000-{uuid4()}.metadata.json")
        (draft / file).parent.mkdir(parents=True)
        (draft / file).write_text(json.dumps(metadata))
        rows.append((space, table, str(directory / file), kind))
    # PyIceberg makes the tables of a new catalog, with a column for views. The files are not where rows say, yet.
    made = SqlCatalog(CATALOG_NAME, uri=f"sqlite:///{draft / 'catalog.db'}")
    for namespace in catalog.list_namespaces():
        made.create_namespace(namespace)
    made.close()
    with closing(sqlite3.connect(draft / "catalog.db", isolation_level=None)) as database:
        database.execute("pragma journal_mode = wal")
        database.executemany(
            "insert into iceberg_tables values (?, ?, ?, ?, null, ?)", [(CATALOG_NAME, *row) for row in rows]
        )
        remember(draft, BASE_CATALOG)
        for table in ("iceberg_tables", "iceberg_namespace_properties"):
            for event, row in (("insert", "new"), ("update", "old"), ("delete", "old")):
                database.executescript(READ_ONLY.format(table=table, event=event, row=row, base=BASE_CATALOG))


def remember(directory: Path, name: str) -> None:
    """Keep what all tables and views of a fork are now, under the name of another catalog in its database."""
    with closing(sqlite3.connect(directory / "catalog.db")) as database, database:
        database.execute("delete from iceberg_tables where catalog_name = ?", (name,))
        database.execute(
            "insert into iceberg_tables select ?, table_namespace, table_name, metadata_location, null, iceberg_type"
            " from iceberg_tables where catalog_name = ?",
            (name, CATALOG_NAME),
        )


def opened(settings: Settings, name: str) -> SqlCatalog:
    """Return one of the catalogs in the database of the fork that the settings are of."""
    return SqlCatalog(
        name, **{**catalog_properties.for_python(settings), "uri": f"sqlite:///{settings.home / 'catalog.db'}"}
    )


def _rows(catalog: Catalog) -> list[Row]:
    """Return all tables and views as one moment had them."""
    if not isinstance(catalog, SqlCatalog):
        return _listed(catalog)
    query = text("select * from iceberg_tables where catalog_name = :name order by table_namespace, table_name")
    with catalog.engine.connect() as connection:
        rows = connection.execute(query, {"name": catalog.name}).mappings().all()
    # A catalog without views has no column of types.
    return [
        (row["table_namespace"], row["table_name"], row["metadata_location"], row.get("iceberg_type") or "TABLE")
        for row in rows
    ]


def _listed(catalog: Catalog) -> list[Row]:
    """Return what a catalog has that cannot read all at one moment: what two lists in turn agree on."""
    rows: list[Row] = []
    for _ in range(LISTINGS):
        before = rows
        contents = [(name, catalog.load_table(name).metadata_location, "TABLE") for name in table_names(catalog)]
        # A server without views lists none. PyIceberg does not name the metadata file of a view.
        views = [".".join(name) for space in catalog.list_namespaces() for name in catalog.list_views(space)]
        contents += [(name, catalog.load_view(name).metadata.model_dump_json(by_alias=True), "VIEW") for name in views]
        rows = [(*name.rpartition(".")[::2], content, kind) for name, content, kind in sorted(contents)]
        if rows == before:
            return rows
    raise UserError("The lake cannot be forked: its tables change all the time", "Stop the ingesters, and run it again")


def _read(catalog: Catalog, location: str) -> dict[str, Any]:
    if location.startswith("{"):
        return dict(json.loads(location))
    with translate_read_errors(location):
        with load_file_io(catalog.properties, location).new_input(location).open() as file:
            content = file.read()
        # Spark compresses the metadata of views.
        return dict(json.loads(gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content))


def _table(metadata: dict[str, Any], tag: str) -> dict[str, Any]:
    """Return the metadata of a table whose current snapshot is the tagged one; without a tag it has no rows."""
    tagged = metadata.get("refs", {}).get(tag, {"snapshot-id": -1})["snapshot-id"]
    numbers = {one["snapshot-id"]: one.get("sequence-number", 0) for one in metadata.get("snapshots", [])}
    # Later ones are production's alone.
    kept = {snapshot_id for snapshot_id, number in numbers.items() if number <= numbers.get(tagged, -1)}
    refs = {
        ref: target
        for ref, target in metadata.get("refs", {}).items()
        if target["type"] == "tag" and not ref.startswith(TAG_PREFIX) and target["snapshot-id"] in kept
    }
    of_snapshots = {
        field: [entry for entry in metadata.get(field, []) if entry["snapshot-id"] in kept]
        for field in ("snapshots", "snapshot-log", "statistics", "partition-statistics")
    }
    log = of_snapshots["snapshot-log"]
    until = max((at for at, entry in enumerate(log, 1) if entry["snapshot-id"] == tagged), default=0)
    properties = {key: value for key, value in metadata.get("properties", {}).items() if key not in PATHS}
    return {
        **metadata,
        **of_snapshots,
        "refs": refs | ({"main": {"snapshot-id": tagged, "type": "branch"}} if kept else {}),
        "current-snapshot-id": tagged,
        "snapshot-log": log[:until],
        "metadata-log": [],
        "properties": properties | {"gc.enabled": "false", "write.metadata.delete-after-commit.enabled": "false"},
    }
