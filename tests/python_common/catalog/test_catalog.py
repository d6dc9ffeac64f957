"""Errors of a table that cannot be read: damage is named as damage, and nothing else is."""

import random
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg import manifest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table
from pyiceberg.types import StringType

from python_common.catalog import catalog
from python_common.catalog.catalog import load_catalog, load_table, read_batches, translate_read_errors
from python_common.config.settings import Settings
from python_common.errors import UserError


@pytest.fixture
def table(offline_settings: Settings) -> Table:
    of_table = load_catalog(offline_settings, create=True)
    of_table.create_namespace("bronze")
    table = of_table.create_table("bronze.events", pa.schema([("id", pa.int64())]))
    table.append(pa.table({"id": range(1000)}))
    return table


def test_a_metadata_file_is_read_once_and_changes_are_seen(table: Table, offline_settings: Settings) -> None:
    file = Path(table.metadata_location.removeprefix("file://"))
    catalog.load_catalog(offline_settings).load_table("bronze.events")
    file.rename(file.with_suffix(".away"))
    again = load_catalog(offline_settings).load_table("bronze.events")
    assert (again.metadata, again.metadata_location) == (table.metadata, table.metadata_location)
    file.with_suffix(".away").rename(file)
    table.append(pa.table({"id": [1000]}))
    assert load_catalog(offline_settings).load_table("bronze.events").scan().count() == 1001
    assert again.scan().count() == 1000


def test_metadata_in_memory_is_bounded_by_snapshots(
    table: Table, offline_settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalog, "MOST_SNAPSHOTS", 2)
    of_file = load_catalog(offline_settings)
    for name in ("first", "second", "third"):
        of_file.create_table(f"bronze.{name}", table.schema()).append(pa.table({"id": [1]}))
        of_file.load_table(f"bronze.{name}")
        of_file.load_table("bronze.events")
    assert [name for _, name in of_file._metadata] == ["third", "events"]


def test_a_catalog_made_again_in_its_place_is_another(table: Table, offline_settings: Settings) -> None:
    path = Path(offline_settings.catalog_uri.removeprefix("jdbc:sqlite:"))
    before = load_catalog(offline_settings)
    assert load_catalog(offline_settings) is before
    path.unlink()
    load_catalog(offline_settings, create=True)
    assert load_catalog(offline_settings).list_namespaces() == []


def damaged(content: bytes, rng: random.Random) -> bytes:
    """Cut bytes off, overwrite some with zeros, or flip some bits."""
    bits, at = bytearray(content), rng.randrange(len(content))
    how = rng.randrange(3)
    if how == 0:
        return content[:at]
    if how == 1:
        return content[:at] + bytes(min(100, len(content) - at)) + content[at + 100 :]
    for _ in range(rng.choice((1, 20))):
        bits[rng.randrange(len(bits))] ^= 1 << rng.randrange(8)
    return bytes(bits)


def read(settings: Settings) -> None:
    catalog._in_file.cache_clear()
    table = load_table(load_catalog(settings), "bronze.events")
    assert table is not None
    manifest._manifest_cache.clear()
    snapshot = table.current_snapshot()
    with translate_read_errors("its files"):
        for of_snapshot in snapshot.manifests(table.io) if snapshot else ():
            of_snapshot.fetch_manifest_entry(table.io)


def test_whatever_damages_a_file_of_metadata_is_called_damage(
    table: Table, offline_settings: Settings, random_seed: int
) -> None:
    snapshot = table.current_snapshot()
    rng = random.Random(random_seed)
    process = partial(ProcessPoolExecutor, 1, get_context("spawn"))
    reader = process()
    for location in (table.metadata_location, snapshot.manifest_list, snapshot.manifests(table.io)[0].manifest_path):
        file = Path(location.removeprefix("file://"))
        content, named = file.read_bytes(), 0
        for _ in range(12):
            file.write_bytes(damaged(content, rng))
            try:
                reader.submit(read, offline_settings).result()
            except UserError as error:
                assert "is missing or damaged" in str(error)
                named += 1
            except BrokenProcessPool:
                # Some damaged lengths end PyIceberg's decoder, which is in C, and the process with it.
                reader = process()
            except (AssertionError, AttributeError, TypeError):
                pytest.fail("an error of damaged bytes passed")
        assert named
        file.write_bytes(content)
    reader.shutdown()


def test_an_unknown_type_in_avro_is_called_damage(table: Table, offline_settings: Settings) -> None:
    snapshot = table.current_snapshot()
    file = Path(snapshot.manifests(table.io)[0].manifest_path.removeprefix("file://"))
    file.write_bytes(file.read_bytes().replace(b'"null"', b'"nuhl"', 1))
    with pytest.raises(UserError, match="is missing or damaged"):
        read(offline_settings)


def test_text_that_is_no_utf_8_is_called_damage(table: Table) -> None:
    with table.update_schema() as update:
        update.add_column("name", StringType())
    table.append(pa.table({"id": [1000], "name": ["n\u00e4me"]}))
    [added, *_] = table.inspect.entries().sort_by([("sequence_number", "descending")])["data_file"].to_pylist()
    file = Path(added["file_path"].removeprefix("file://"))
    pq.write_table(pq.read_table(file), file, compression="none", use_dictionary=False, write_statistics=False)
    file.write_bytes(file.read_bytes().replace("n\u00e4me".encode(), b"n\xc3\xffme"))
    with pytest.raises(UserError, match="is missing or damaged"):
        list(read_batches(table, "id = 1000", ("name",)))


@pytest.mark.parametrize(
    "error",
    [MemoryError(), pa.ArrowMemoryError(), NotImplementedError(), RuntimeError("can't start new thread"), TypeError()],
)
def test_what_damaged_bytes_do_not_cause_is_not_called_damage(error: Exception) -> None:
    with pytest.raises(type(error)) as caught, translate_read_errors("a file"):
        raise error
    assert caught.value is error


def test_a_damaged_table_is_named_by_its_file(table: Table, offline_settings: Settings, tmp_path: Path) -> None:
    database = f"sqlite:///{tmp_path / 'catalog.db'}"
    for name in ("another", "zebra"):
        other = SqlCatalog(name, uri=database, warehouse=str(tmp_path / name))
        other.create_namespace("bronze")
        other.create_table("bronze.events", pa.schema([("id", pa.int64())]))
    Path(table.metadata_location.removeprefix("file://")).write_text("{")
    with pytest.raises(UserError) as caught:
        load_table(load_catalog(offline_settings), "bronze.events")
    assert str(caught.value).startswith(f"{table.metadata_location}, the metadata of bronze.events, is missing or")
