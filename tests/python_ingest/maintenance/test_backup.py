"""A backup of one machine's lake that is taken while the ingester commits, and what comes after it is restored."""

import shutil
import threading
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import pytest
from pyiceberg.catalog import Catalog
from pyspark.sql import SparkSession

from python_common.catalog.catalog import load_catalog
from python_common.catalog.small_table import PROPERTIES, SmallTable
from python_common.config.settings import Settings
from python_common.errors import UserError
from python_common.spark.spark_conf import configuration
from python_jobs import backup
from tests.support.lab import Lab, assert_exactly_once, produce


@dataclass(frozen=True)
class Note:
    name: Annotated[str, "what it is"]
    text: Annotated[str, "what it says"]


NOTES = SmallTable("ops.notes", Note)
KEPT = int(PROPERTIES["write.metadata.previous-versions-max"])


@pytest.fixture
def own_lab(lab: Lab, tmp_path: Path) -> Lab:
    """A lab on a lake of its own."""
    settings = lab.settings.changed(
        warehouse=str(tmp_path / "lake/warehouse"), catalog_uri=f"jdbc:sqlite:{tmp_path / 'lake/catalog.db'}"
    )
    return replace(lab, settings=settings, spark=on(settings, lab.spark))


def on(settings: Settings, spark: SparkSession) -> SparkSession:
    """Return a session that has seen nothing of a catalog yet."""
    own = spark.newSession()
    for name, value in configuration(settings).items():
        if name.startswith("spark.sql.catalog."):
            own.conf.set(name, value)
    return own


def test_a_lake_that_was_saved_while_records_came_goes_on_from_there(own_lab: Lab, tmp_path: Path) -> None:
    lake, saved, copy = tmp_path / "lake", tmp_path / "tables.json", tmp_path / "copy"
    produce(own_lab, 300)
    own_lab.land_well()
    catalog = load_catalog(own_lab.settings)
    note(catalog, "as it was")

    ended, landed = threading.Event(), []

    def follow() -> None:
        while not ended.is_set():
            produce(own_lab, 30, 300 + 30 * len(landed))
            landed.append(own_lab.land_well())

    following = threading.Thread(target=follow)
    following.start()
    while not landed:
        ended.wait(0.1)
    assert backup.save(catalog, saved) == 2
    assert saved.stat().st_mode & 0o077 == 0
    then = len(landed)
    # The metadata file that was saved is not in the copy any more.
    for number in range(KEPT + 5):
        note(catalog, str(number))
    while len(landed) < then + 2:
        ended.wait(0.1)
    shutil.copytree(lake / "warehouse", copy, ignore_dangling_symlinks=True)
    ended.set()
    following.join()
    total = 300 + 30 * len(landed)
    assert len(own_lab.rows()) == total

    shutil.rmtree(lake)
    shutil.copytree(copy, lake / "warehouse")
    restored = load_catalog(own_lab.settings, create=True)
    assert backup.restore(restored, saved) == 2
    assert NOTES.rows(restored)["note"].text == "as it was"
    assert 300 + 30 * then <= len(own_lab.rows()) < total

    produce(own_lab, 30, total)
    own_lab = replace(own_lab, spark=on(own_lab.settings, own_lab.spark))
    own_lab.land_well()
    assert_exactly_once(own_lab, total + 30)
    with pytest.raises(UserError, match=f"There is a table {own_lab.declaration.identifier} already|ops.notes already"):
        backup.restore(restored, saved)


def note(catalog: Catalog, text: str) -> None:
    NOTES.change(catalog, lambda rows: {"note": Note("note", text)})
