"""A lake that is saved and restored by the steps of docs/operations.md goes on, and erases again."""

import shutil
import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest

from python_common import pii_key
from python_common.catalog.catalog import load_catalog
from python_common.config.settings import Settings
from python_ingest.declare.persons import Subject
from python_ingest.declare.topics import Declaration
from python_ingest.maintenance import erase, receipts
from python_ingest.maintenance.erase import Person
from tests.support.erased_rows import assert_verified, erased, produce
from tests.support.services.spark_jvm import separate_session
from tests.support.topic_fixture import TopicFixture

ANNA, OTHER = Person("customer", "1"), Person("customer", "2")


@pytest.fixture
def declaration(declaration: Declaration) -> Declaration:
    return replace(declaration, persons=(Subject("customer", ("who.id",)),))


@pytest.fixture
def settings(services: Settings, tmp_path: Path) -> Settings:
    """Those of a separate lake."""
    settings = services.changed(
        warehouse=str(tmp_path / "lake/warehouse"),
        catalog_uri=f"jdbc:sqlite:{tmp_path / 'lake/catalog.db'}",
        pii_key_file=tmp_path / "pii.key",
    )
    pii_key.create(settings.pii_key_file)
    load_catalog(settings, create=True)
    return settings


def erase_with_receipt(topic: TopicFixture, person: Person) -> None:
    catalog = load_catalog(topic.settings)
    receipt = receipts.begin(topic.settings.needed("pii_key_file"), [person], [])
    receipt.save(catalog)
    assert erased(topic, person) == [3]
    receipt.end(catalog)


@pytest.mark.slow
def test_a_restored_lake_goes_on_and_erases_again(settings: Settings, declaration: Declaration, tmp_path: Path) -> None:
    lake, saved = tmp_path / "lake", tmp_path / "saved"
    with separate_session(settings, "saved") as spark:
        topic = TopicFixture(settings, spark, declaration)
        topic.make_topic()
        produce(topic)
        topic.land_well()
        erase_with_receipt(topic, OTHER)
        saved.mkdir()
        with sqlite3.connect(lake / "catalog.db") as catalog:
            catalog.execute("vacuum into ?", (str(saved / "catalog.db"),))
        shutil.copytree(lake / "warehouse", saved / "warehouse")

        erase_with_receipt(topic, ANNA)
        produce(topic)
        topic.land_well()
        shutil.copytree(lake / "warehouse/ops/erasures", tmp_path / "erasures")

    shutil.rmtree(lake)
    shutil.copytree(saved, lake)
    shutil.copytree(tmp_path / "erasures", lake / "warehouse/ops/erasures", dirs_exist_ok=True)
    with separate_session(settings, "restored") as spark:
        newest = max((lake / "warehouse/ops/erasures/metadata").glob("*.metadata.json"))
        spark.sql("drop table lake.ops.erasures")
        spark.sql(f"call lake.system.register_table('ops.erasures', 'file:{newest}')")
        topic = replace(topic, spark=spark)
        assert_verified(topic, 9, 3)
        restored = load_catalog(settings)
        again, _ = receipts.named(restored, settings.pii_key_file, erase.everyone(restored, [declaration]))
        assert again == [ANNA]
        assert erased(topic, *again) == [3]
        topic.land_well()
        assert_verified(topic, 18, 6)
