"""Receipts of erasures: known again on every machine, finished there, and without any id."""

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog

from python_common import pii_key
from python_common.catalog.catalog import load_catalog
from python_common.config.settings import Settings
from python_ingest.declare.persons import Subject
from python_ingest.declare.topics import Declaration
from python_ingest.maintenance import erase, receipts
from python_ingest.maintenance.erase import Person

ANNA = Person("shop.customer", " anna.archer")


@pytest.fixture
def key_file(offline_settings: Settings) -> Path:
    pii_key.create(offline_settings.pii_key_file)
    return offline_settings.pii_key_file


def test_a_receipt_is_unknown_after_a_rotation_of_the_key(
    key_file: Path,
    catalog: Catalog,
    offline_settings: Settings,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert receipts.every(catalog) == []
    receipt = receipts.begin(key_file, [ANNA], ["sales:0:7"])
    receipt.tables["bronze.sales"] = {"rows": 3, "erased_at": None}
    receipt.save(catalog)
    assert "archer" not in str(receipts.TABLE.rows(catalog))
    monkeypatch.setenv("LAKEHOUSE_HOME", str(tmp_path / "another machine"))
    other = load_catalog(offline_settings)
    pii_key.rotate(key_file)
    [known] = receipts.of_request(other, key_file, [Person("shop.customer", "anna.archer")], ["sales:0:7"])
    assert known == receipt
    [line] = receipts.unfinished(other)
    assert line.startswith(f"the erasure of {receipt.begun_at} is not finished")
    known.end(other)
    assert [stored.state for stored in receipts.every(catalog)] == ["done"]
    assert receipts.unfinished(catalog) == []
    for persons, records in (
        ([ANNA], []),
        ([], ["sales:0:7"]),
        ([replace(ANNA, kind="storefront.user")], ["sales:0:7"]),
        ([Person("shop.customer", "43")], ["sales:0:7"]),
        ([ANNA, Person("storefront.user", "1")], ["sales:0:7"]),
    ):
        assert receipts.of_request(catalog, key_file, persons, records) == []


def test_receipts_name_those_of_bronze_under_every_key(key_file: Path, catalog: Catalog) -> None:
    sales = Declaration(
        topic="sales",
        schema="bronze",
        table="sales",
        key="string",
        on_error="dead_letter",
        persons=(
            Subject("shop.customer", ("who.id", "buyer", "not_landed")),
            Subject("shop.address", ("street",), (("sales", "buyer"),)),
        ),
    )
    rows = pa.table(
        {
            "kafka_partition": pa.array([0, 0, 1], pa.int32()),
            "kafka_offset": pa.array([0, 1, 0]),
            "who": [{"id": 42}, {"id": 43}, None],
            "buyer": ["anna.archer ", None, "else"],
            "street": ["a", "b", "c"],
        }
    )
    catalog.create_table("bronze.sales", rows.schema).append(rows)
    receipts.begin(key_file, [Person("shop.customer", "43")], ["sales:1:0"]).save(catalog)
    pii_key.rotate(key_file)
    receipts.begin(key_file, [ANNA], []).save(catalog)
    receipts.begin(key_file, [Person("payments.customer", "42")], []).save(catalog)
    persons, records = receipts.named(catalog, key_file, erase.everyone(catalog, [sales]))
    assert {*persons} == {Person("shop.customer", "43"), Person("shop.customer", "anna.archer")}
    assert (len(persons), records) == (2, ["sales:1:0"])
