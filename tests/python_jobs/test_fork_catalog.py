"""A fork shares production's data files, and nothing done in it reaches them."""

import gzip
import json
import sqlite3
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import TableAlreadyExistsError
from pyiceberg.table import Table
from pyiceberg.typedef import Identifier
from pyiceberg.types import StringType
from sqlalchemy.exc import IntegrityError

from python_common.catalog.catalog import load_catalog, make_namespace
from python_common.config.settings import Settings
from python_common.errors import UserError
from python_jobs import fork_catalog
from tests.support.lake import contents

DAY = timedelta(days=1)
NAMES = ("shop.orders", "shop.empty", "ops.leases")


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64())})


def ids(catalog: SqlCatalog, name: str) -> list[int]:
    return sorted(catalog.load_table(name).scan().to_arrow()["id"].to_pylist())


@pytest.fixture
def production(offline_settings: Settings) -> SqlCatalog:
    """Three tables: one with two snapshots, deletes after commits and a path for data; an empty one; leases."""
    catalog = load_catalog(offline_settings, create=True)
    for name in NAMES:
        make_namespace(catalog, name.split(".")[0])
        catalog.create_table(name, rows().schema, properties={"write.metadata.delete-after-commit.enabled": "true"})
    catalog.load_table("shop.orders").append(rows(1, 2))
    catalog.load_table("shop.orders").append(rows(3))
    catalog.load_table("ops.leases").append(rows(9))
    return catalog


def forked(production: SqlCatalog, settings: Settings, name: str = "mine") -> tuple[SqlCatalog, SqlCatalog]:
    """Fork; return the fork's catalog, and production as it was in it."""
    directory = Path(settings.warehouse).parent / "forks" / name
    draft = directory.with_name(f".{name}")
    fork_catalog.tag(production, f"fork_{name}", DAY)
    fork_catalog.write(production, f"fork_{name}", draft, directory, {"ops.leases"})
    draft.rename(directory)
    lake = load_catalog(settings_of(settings, directory))
    return lake, SqlCatalog("base", **lake.properties)


def settings_of(settings: Settings, directory: Path) -> Settings:
    return settings.changed(
        catalog_uri=f"jdbc:sqlite:{directory / 'catalog.db'}", warehouse=str(directory / "warehouse")
    )


def test_a_fork_changes_no_byte_of_production(production: SqlCatalog, offline_settings: Settings) -> None:
    lake, base = forked(production, offline_settings)
    for catalog in (lake, base):
        assert [ids(catalog, name) for name in NAMES] == [[1, 2, 3], [], []]
    assert not list((Path(offline_settings.warehouse).parent / "forks").rglob("*.parquet"))
    before = contents(offline_settings)
    table = lake.load_table("shop.orders")
    table.append(rows(4))
    table.delete("id = 1")
    # More commits than production keeps metadata files.
    for number in range(100, 110):
        table.append(rows(number))
    with table.update_schema() as update:
        update.add_column("more", StringType())
    lake.drop_table("shop.empty")
    lake.create_table("shop.empty", rows().schema).append(rows(7))
    assert ids(lake, "shop.orders") == [2, 3, 4, *range(100, 110)]
    assert ids(base, "shop.orders") == [1, 2, 3]
    assert contents(offline_settings) == before


def test_a_fork_changes_the_tags_of_production_alone(production: SqlCatalog, offline_settings: Settings) -> None:
    before = contents(offline_settings)
    metadata = {name: production.load_table(name).metadata for name in NAMES}
    forked(production, offline_settings)
    assert before.items() - contents(offline_settings).items() == {("catalog", before["catalog"])}
    for name in NAMES:
        now = production.load_table(name).metadata
        assert now.snapshots == metadata[name].snapshots
        assert now.refs.keys() - metadata[name].refs.keys() == ({"fork_mine"} if now.snapshots else set())
    fork_catalog.untag(production, "fork_mine")
    assert fork_catalog.tags(production) == []


def test_a_fork_is_what_was_tagged(production: SqlCatalog, offline_settings: Settings) -> None:
    fork_catalog.tag(production, "fork_mine", DAY)
    orders = production.load_table("shop.orders")
    tagged = orders.current_snapshot()
    orders.overwrite(rows(50))
    production.load_table("shop.empty").append(rows(60))
    directory = Path(offline_settings.warehouse).parent / "forks" / "mine"
    fork_catalog.write(production, "fork_mine", directory, directory, ())
    orders.append(rows(51))
    # As maintenance does.
    with orders.maintenance.expire_snapshots() as expire:
        expire.by_ids([orders.snapshots()[0].snapshot_id])
    lake = load_catalog(settings_of(offline_settings, directory))
    assert ids(lake, "shop.orders") == [1, 2, 3]
    assert ids(lake, "shop.empty") == []
    assert lake.load_table("shop.orders").current_snapshot() == tagged
    assert lake.load_table("shop.orders").properties["gc.enabled"] == "false"


def test_the_base_of_a_fork_is_read_only(production: SqlCatalog, offline_settings: Settings) -> None:
    _, base = forked(production, offline_settings)
    with pytest.raises(IntegrityError, match="base is read only"):
        base.load_table("shop.orders").append(rows(4))
    with pytest.raises(IntegrityError, match="base is read only"):
        base.drop_table("shop.orders")
    # PyIceberg takes the refusal for a table of that name.
    with pytest.raises(TableAlreadyExistsError):
        base.create_table("shop.new", rows().schema)
    assert not base.table_exists("shop.new")


def test_a_fork_keeps_the_summaries_of_earlier_batches(production: SqlCatalog, offline_settings: Settings) -> None:
    orders = production.load_table("shop.orders")
    for summary in ({"lakehouse.batch": "1"}, {"lakehouse.batch": "2"}, {}, {}):
        orders.append(rows(4), snapshot_properties=summary)
    lake, _ = forked(production, offline_settings)
    batches = [snapshot.summary["lakehouse.batch"] for snapshot in lake.load_table("shop.orders").snapshots()]
    assert batches[-4:] == ["1", "2", None, None]


def test_views_with_compressed_metadata_are_forked(production: SqlCatalog, offline_settings: Settings) -> None:
    """Spark writes the metadata of views compressed."""
    view = {"view-uuid": "1", "location": "elsewhere", "versions": [{"version-id": 1}], "properties": {"comment": "x"}}
    file = Path(offline_settings.warehouse) / "v.gz.metadata.json"
    file.write_bytes(gzip.compress(json.dumps(view).encode()))
    with closing(sqlite3.connect(offline_settings.catalog_uri.removeprefix("jdbc:sqlite:"))) as database, database:
        names = "catalog_name, table_namespace, table_name, metadata_location, iceberg_type"
        database.execute(f"insert into iceberg_tables ({names}) values ('lake', 'shop', 'v', ?, 'VIEW')", [str(file)])
    directory = Path(offline_settings.warehouse).parent / "forks" / "mine"
    fork_catalog.write(production, "fork_mine", directory, directory, ())
    with closing(sqlite3.connect(directory / "catalog.db")) as database:
        query = "select metadata_location from iceberg_tables where iceberg_type = 'VIEW' and catalog_name = 'lake'"
        [(location,)] = database.execute(query)
    assert json.loads(Path(location).read_text()) == view | {
        "view-uuid": json.loads(Path(location).read_text())["view-uuid"],
        "location": f"{directory}/warehouse/shop/v",
        "properties": {"comment": "x"},
    }


class BusyCatalog(SqlCatalog):
    """A catalog in which others write while its tables are listed, some times; namespaces have no order."""

    writes = 0

    def list_namespaces(self, namespace: str | Identifier = ()) -> list[Identifier]:
        return sorted(super().list_namespaces(namespace), reverse=True)

    def list_views(self, namespace: str | Identifier) -> list[Identifier]:
        return []

    def load_table(self, identifier: str | Identifier) -> Table:
        table = super().load_table(identifier)
        if self.writes:
            self.writes -= 1
            SqlCatalog(self.name, **self.properties).load_table(identifier).append(rows(5))
        return table


def test_a_catalog_is_listed_until_no_table_changes(production: SqlCatalog, monkeypatch: pytest.MonkeyPatch) -> None:
    busy = BusyCatalog("lake", **production.properties)
    busy.writes = 4
    assert fork_catalog._listed(busy) == fork_catalog._rows(production)
    monkeypatch.setattr(fork_catalog, "LISTINGS", 3)
    busy.writes = 1000
    with pytest.raises(UserError, match="its tables change all the time"):
        fork_catalog._listed(busy)


@pytest.mark.parametrize(
    ("uri", "properties", "store"),
    [
        ("jdbc:postgresql://h:5433/d?user=lake", "jdbc.password p\ns3.acl private", {"s3.acl": "private"}),
        ("https://h/api/catalog", "credential a:b\nclient.region r", {"client.region": "r"}),
    ],
)
def test_a_fork_has_the_store_and_no_login_of_its_lake(
    offline_settings: Settings, tmp_path: Path, uri: str, properties: str, store: dict[str, str]
) -> None:
    assert fork_catalog.store_properties(offline_settings) == {}
    file = tmp_path / "catalog.properties"
    file.write_text(properties)
    file.chmod(0o600)
    elsewhere = offline_settings.changed(catalog_uri=uri, warehouse="s3://b/w", catalog_properties=file)
    assert fork_catalog.store_properties(elsewhere) == {"io-impl": "org.apache.iceberg.io.ResolvingFileIO", **store}
