"""Which published versions hold rows of a person, by id or pseudonym, and how an erasure is known again."""

from pathlib import Path

import pytest

from erasure import receipts
from erasure.published import find
from lakehouse import pii_key
from lakehouse.settings import Settings
from python_export.datasets.declared import Dataset, Table
from python_export.publishing.target import open_target
from python_export.publishing.withdraw import withdraw
from python_ingest.repair.erase import Person
from tests.python_export.publishing.test_export_publish import publish_content

EVENTS = Dataset(
    name="events",
    model="exp_weekly__events",
    table=Table("exports", "events"),
    key=("note",),
    order_by=("note",),
    topics=(),
    persons={"note": ("customer",)},
)
PERSON = Person("customer", " 42 ")


@pytest.fixture
def key_file(offline_settings: Settings) -> Path:
    pii_key.create(offline_settings.pii_key_file)
    return offline_settings.pii_key_file


def test_versions_are_found_by_id_and_by_pseudonyms_of_every_key_and_by_nothing_else(
    key_file: Path, offline_settings: Settings
) -> None:
    target = open_target(offline_settings)
    old = pii_key.pseudonyms(key_file, "customer", "42")["v1"]
    pii_key.rotate(key_file)
    new = pii_key.pseudonyms(key_file, "customer", "42")["v2"]
    assert old != new
    for lines in (["shop-42", "42"], [f"store-{old}"], [new], ["142", "shop-421", "4.2", f"{new}0"], ["user"]):
        publish_content(target, "\n".join(["note", *lines, ""]))
    found = find(target, [EVENTS], key_file, [PERSON])
    assert (found.rows, found.unknown) == (
        {"events/2020-W53/v1": 2, "events/2020-W53/v2": 1, "events/2020-W53/v3": 1},
        [],
    )
    assert find(target, [EVENTS], key_file, [Person("user", "42")]).rows == {}
    withdraw(target, "events/2020-W53/v1", "erased")
    assert find(target, [EVENTS], key_file, [PERSON]).rows.keys() == {"events/2020-W53/v2", "events/2020-W53/v3"}
    (target.root / "events/2020-W53/v2").chmod(0o755)
    next((target.root / "events/2020-W53/v2").glob("*v2.csv")).unlink()
    assert find(target, [EVENTS], key_file, [PERSON]).unknown == ["events/2020-W53/v2: its file is missing"]
    assert len(find(target, [], key_file, [PERSON]).unknown) == 5


def test_a_receipt_is_known_again_after_the_key_was_rotated_and_says_of_nobody(
    key_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAKEHOUSE_HOME", str(tmp_path / "home"))
    assert receipts.every() == []
    anna = Person("customer", " anna.archer")
    receipt = receipts.begin(key_file, [anna], ["sales:0:7"])
    receipt.save()
    assert "42" not in receipt.path.read_text().replace(receipt.subjects[0]["hash"], "").replace(
        receipt.id, ""
    ).replace(receipt.begun_at, "")
    assert receipt.path.stat().st_mode & 0o777 == 0o600
    pii_key.rotate(key_file)
    [known] = receipts.of_request(key_file, [Person("customer", "anna.archer")], ["sales:0:7"])
    assert (known.state, known.path) == ("begun", receipt.path)
    known.end()
    assert [receipt.state for receipt in receipts.every()] == ["done"]
    for persons, records in (
        ([anna], []),
        ([], ["sales:0:7"]),
        ([Person("user", "anna.archer")], ["sales:0:7"]),
        ([Person("customer", "43")], ["sales:0:7"]),
        ([anna, Person("user", "1")], ["sales:0:7"]),
    ):
        assert receipts.of_request(key_file, persons, records) == []
