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
from tests.support.topic_fixture import TopicFixture, assert_exactly_once, produce


@dataclass(frozen=True)
class Note:
    name: Annotated[str, "what it is"]
    text: Annotated[str, "its text"]


NOTES = SmallTable("ops.notes", Note)
METADATA_FILES = int(PROPERTIES["write.metadata.previous-versions-max"])


@pytest.fixture
def separate_topic(topic: TopicFixture, tmp_path: Path) -> TopicFixture:
    """A topic on a separate lake."""
    settings = topic.settings.changed(
        warehouse=str(tmp_path / "lake/warehouse"), catalog_uri=f"jdbc:sqlite:{tmp_path / 'lake/catalog.db'}"
    )
    return replace(topic, settings=settings, spark=on(settings, topic.spark))


def on(settings: Settings, spark: SparkSession) -> SparkSession:
    """Return a session that has seen nothing of a catalog yet."""
    session = spark.newSession()
    for name, value in configuration(settings).items():
        if name.startswith("spark.sql.catalog."):
            session.conf.set(name, value)
    return session


@pytest.mark.slow
def test_a_lake_that_was_saved_while_records_came_goes_on_from_there(
    separate_topic: TopicFixture, tmp_path: Path
) -> None:
    lake, saved, copy = tmp_path / "lake", tmp_path / "tables.json", tmp_path / "copy"
    produce(separate_topic, 300)
    separate_topic.land_well()
    catalog = load_catalog(separate_topic.settings)
    note(catalog, "as it was")

    ended, landed = threading.Event(), []

    def follow() -> None:
        while not ended.is_set():
            produce(separate_topic, 30, 300 + 30 * len(landed))
            landed.append(separate_topic.land_well())

    following = threading.Thread(target=follow)
    following.start()
    while not landed:
        ended.wait(0.1)
    assert backup.save(catalog, saved) == 2
    assert saved.stat().st_mode & 0o077 == 0
    then = len(landed)
    # The metadata file that was saved is not in the copy any more.
    for number in range(METADATA_FILES + 5):
        note(catalog, str(number))
    while len(landed) < then + 2:
        ended.wait(0.1)
    shutil.copytree(lake / "warehouse", copy, ignore_dangling_symlinks=True)
    ended.set()
    following.join()
    total = 300 + 30 * len(landed)
    assert len(separate_topic.rows()) == total

    shutil.rmtree(lake)
    shutil.copytree(copy, lake / "warehouse")
    restored = load_catalog(separate_topic.settings, create=True)
    assert backup.restore(restored, saved) == 2
    assert NOTES.rows(restored)["note"].text == "as it was"
    assert 300 + 30 * then <= len(separate_topic.rows()) < total

    produce(separate_topic, 30, total)
    separate_topic = replace(separate_topic, spark=on(separate_topic.settings, separate_topic.spark))
    separate_topic.land_well()
    assert_exactly_once(separate_topic, total + 30)
    with pytest.raises(
        UserError, match=f"There is a table {separate_topic.declaration.identifier} already|ops.notes already"
    ):
        backup.restore(restored, saved)


def note(catalog: Catalog, text: str) -> None:
    NOTES.change(catalog, lambda rows: {"note": Note("note", text)})
