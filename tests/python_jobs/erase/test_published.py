"""Which published versions hold rows of a person, by id or pseudonym."""

import json
import os
import time
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from python_common import pii_key
from python_common.catalog.catalog import load_catalog, make_namespace
from python_common.config.settings import Settings
from python_dbt.manifest import Column, DbtManifest, Node
from python_export.datasets.dictionary import Field
from python_export.notify import outbox
from python_export.notify.messages import report_path
from python_export.publishing.manifest import paths, read
from python_export.publishing.publish import withdraw
from python_export.publishing.target import Target, open_target
from python_export.variables import Channels
from python_ingest.declare.persons import Subject
from python_ingest.maintenance import erase
from python_ingest.maintenance.erase import Person, everyone
from python_jobs.erase import published
from python_jobs.erase.published import PersonColumns, clean, find, person_columns, pseudonyms
from tests.support.hostile_rows import draft, failing
from tests.support.publishing import leave_changes, unlock
from tests.support.topic_fixture import new_declaration
from tests.support.versions import publish_file, tree

PERSON = Person("shop.customer", " 42 ")
CUSTOMERS = {"note": ["shop.customer"]}


@pytest.fixture
def key_file(offline_settings: Settings) -> Path:
    pii_key.create(offline_settings.pii_key_file)
    return offline_settings.pii_key_file


def publish_note(target: Target, *lines: str, persons: dict[str, list[str]] | None = None) -> str:
    """Publish lines of the column note, and return the version's address."""
    made, content = replace(draft("2020-W53"), persons=persons), "\n".join(["note", *lines, ""])
    version = publish_file(target, content, made, [Field("note", "")])
    return target.address(version.manifest.path)


def test_versions_are_found_by_pseudonyms_and_ids(offline_settings: Settings) -> None:
    """By pseudonyms in any column, by ids in those that name persons."""
    target = open_target(offline_settings)
    old, new = "0a" * 32, "1b" * 32
    clear = publish_note(target, "shop-42", "42", "'42", "142", "shop-421", "4.2", persons=CUSTOMERS)
    by_old = publish_note(target, f"store-{old}", f"see {old.upper()}.", "user", persons={})
    by_new = publish_note(target, new, persons=CUSTOMERS)
    publish_note(target, "42", persons={})
    undeclared = publish_note(target, "shop-42", "43")

    def searched(*persons: Person, declared: PersonColumns = MappingProxyType({})) -> dict[str, int]:
        return find([target], persons, {old, new} if PERSON in persons else (), declared, [])

    # A version of an older release: any column that a model declares, or the manifest of a later version.
    assert searched(PERSON) == {clear: 3, by_old: 2, by_new: 1, undeclared: 1}
    assert searched(Person("shop.customer", "42")) == {clear: 3, undeclared: 1}
    user = Person("storefront.user", "42")
    assert searched(user) == {}
    assert searched(user, declared={"note": {"storefront.user"}}) == {undeclared: 1}


def test_columns_of_persons_are_those_that_any_model_declares() -> None:
    one = {"note": Column(meta={"subjects": ["shop.customer"]}), "b": Column()}
    two = {"note": Column(meta={"subjects": ["storefront.user"]})}
    models = [Node(f"model.x.{n}", "model", n, "x", columns=columns) for n, columns in {"one": one, "two": two}.items()]
    assert person_columns(DbtManifest({model.unique_id: model for model in models})) == {
        "note": {"shop.customer", "storefront.user"},
        "b": set(),
    }


def test_what_cannot_be_searched_is_named(offline_settings: Settings, tmp_path: Path) -> None:
    roots = [offline_settings, offline_settings.changed(export_root=str(tmp_path / "other"))]
    target, other = map(open_target, roots)
    first, second, third, fourth = (publish_note(target, str(number), persons=CUSTOMERS) for number in range(4))
    elsewhere = publish_note(other, "42", persons=CUSTOMERS)
    for version in (first, second, third):
        unlock(Path(version))
    next(Path(first).glob("*/events*.csv")).unlink()
    next(Path(second).glob("*/events*.csv")).write_bytes(b'note\n"cut off')
    (Path(third) / "manifest.json").write_text("{")
    withdraw(target, "events/2020-W53/v4", "erased")
    not_searched: list[str] = []
    assert find([target, other], [PERSON], (), {}, not_searched) == {elsewhere: 1}
    assert [line.partition(": ")[0] for line in not_searched] == [third, first, second]
    assert "missing or damaged" in not_searched[0]
    assert not_searched[1:] == [
        f"{first}: its file is missing",
        f"{second}: its file cannot be read (InvalidInputException)",
    ]
    assert fourth not in str(not_searched)


def test_a_root_is_searched_while_it_or_its_rows_remain(offline_settings: Settings, tmp_path: Path) -> None:
    catalog = load_catalog(offline_settings, create=True)
    roots = {name: str(tmp_path / name) for name in ("there", "dropped", "gone", "gone and dropped")}
    for root in roots.values():
        target = open_target(offline_settings.changed(export_root=root))
        publish_note(target, "42", persons=CUSTOMERS)
        outbox.record_versions(catalog, target, Channels.of({}), [])
    dropped = [key for key, entry in outbox.TABLE.rows(catalog).items() if entry.export_root.endswith("dropped")]
    outbox.drop(catalog, dropped)
    for name in ("gone", "gone and dropped"):
        Path(roots[name]).rename(tmp_path / f"{name} elsewhere")
    known, missing = published.targets(offline_settings, catalog)
    assert [target.address("") for target in known[1:]] == [roots["dropped"], roots["there"]]
    assert [line.partition(" is missing")[0] for line in missing] == [roots["gone"]]
    addresses = find(known, [PERSON], (), {}, [])
    assert len(addresses) == 2
    published.withdraw(known, addresses)
    assert find(known, [PERSON], (), {}, []) == {}


def test_an_erasure_withdraws_from_a_root_that_holds_its_rows(offline_settings: Settings, tmp_path: Path) -> None:
    """Reports and index too; nothing is written to a root that holds no row of the person."""
    target = open_target(offline_settings)
    other = open_target(offline_settings.changed(export_root=str(tmp_path / "other")))
    address, _ = (publish_note(root, "a") for root in (target, other))
    for root in (target, other):
        root.put(report_path("2020-W53"), b"figures of the person")
    published.withdraw([target, other], {address})
    assert [Path(root.address(report_path("2020-W53"))).exists() for root in (target, other)] == [False, True]
    [version] = json.loads(target.read("versions.json"))["datasets"]["events"]
    assert version["withdrawn"]["reason"] == published.REASON
    with pytest.raises(FileNotFoundError):
        other.read("versions.json")


def test_keys_that_an_earlier_withdrawal_left_are_deleted(offline_settings: Settings) -> None:
    target = open_target(offline_settings)
    first, second = publish_note(target, "a"), Path(publish_note(target, "b"))
    withdraw(target, "events/2020-W53/v1", "erased")
    assert find([target], [PERSON], (), {}, []) == {}
    leave_changes(target, "events/2020-W53/v2")
    versions = find([target], [PERSON], (), {}, [])
    assert versions == {first: 0}
    published.withdraw([target], versions)
    assert not [*second.rglob("changes.csv")]
    assert find([target], [PERSON], (), {}, []) == {}


def test_what_dead_exports_left_goes_and_versions_stay(offline_settings: Settings, tmp_path: Path) -> None:
    target = open_target(offline_settings)
    other = open_target(offline_settings.changed(export_root=str(tmp_path / "other")))
    publish_note(target, "42")
    Path(tmp_path / "other").write_text("no directory")
    dead = target.staging / "dead"
    dead.mkdir()
    (dead / "part-0.csv").write_text("42")
    files = ("events/.latest.json.0011aabb", "unloaded/.contract.odcs.yaml.0011aabb")
    unfinished = [tmp_path / "exports" / file for file in files]
    for file in unfinished:
        file.parent.mkdir(exist_ok=True)
        file.write_text("42")
        # The store's clock is an hour ahead.
        os.utime(file, (time.time() + 3600, time.time() + 3600))
    before = tree(target)
    [left] = clean([target, other], ["unloaded"])
    assert left.startswith(f"{tmp_path / 'other'}: ")
    assert not dead.exists()
    assert not any(file.exists() for file in unfinished)
    assert tree(target).items() >= before.items() - dict.fromkeys(files, b"42").items()


def test_pseudonyms_are_made_of_any_spelling_and_every_key(spark: SparkSession, key_file: Path) -> None:
    pii_key.rotate(key_file)
    before_sources = key_file.with_name(f"{key_file.name}.v1")
    before_sources.write_text(before_sources.read_text().replace(":source", ""))
    for kind, domain, typed, value in (
        ("shop.customer", "shop.customer", " 42 ", "42"),
        ("shop.email", "email", " Anna.Archer@Example.ORG", "anna.archer@example.org"),
        ("payments.card_number", "card_number", "4929-1746 3388 2051", "4929174633882051"),
    ):
        made = pseudonyms(spark, key_file, [Person(kind, typed)])
        assert made == {*pii_key.pseudonyms(key_file, domain, value).values()}
        assert len(made) == 2
    assert pseudonyms(spark, key_file, [Person("shop.customer", " ")]) == set()


def test_rows_of_every_former_mask_and_key_are_found(
    spark: SparkSession, key_file: Path, offline_settings: Settings
) -> None:
    """Published by a release that trimmed blanks of ASCII alone, and by this one, with two keys; then erased."""
    user = "storefront.user"
    landed = ["Zo\u00e9", "\u3000Zo\u00e9", "Zo\u00e9\u00a0", "\ufeffZo\u00e9\u200b", "Zo\u00e9 "]
    landed += ["Zoe\u0301", "\u2009Zoe\u0301"]
    others = ["Zoe", "Zo\u00e9\u00e9", "\u00a0"]
    published_ids = {text.strip(" \t\r\n") for text in (*landed, *others)}
    by_former_masks = {text: {*pii_key.pseudonyms(key_file, user, text).values()} for text in published_ids}
    pii_key.rotate(key_file)
    catalog = load_catalog(offline_settings, create=True)
    declaration = new_declaration(persons=(Subject(user, ("userid",)),))
    make_namespace(catalog, declaration.schema)
    rows = pa.table({"kafka_partition": [0] * 10, "kafka_offset": range(10), "userid": [*landed, *others]})
    catalog.create_table(declaration.identifier, rows.schema).append(rows)
    target = open_target(offline_settings)
    addresses = [publish_note(target, *hashed, persons={}) for hashed in by_former_masks.values()]
    of_person = [address for text, address in zip(by_former_masks, addresses, strict=True) if text not in others]
    by_id = publish_note(target, *landed, *others, persons={"note": [user]})
    for typed in ("Zo\u00e9", "Zoe\u0301", "\u00a0Zo\u00e9\ufeff"):
        persons = {Person(user, typed), *everyone(catalog, [declaration], [Person(user, typed)])}
        hashes = pseudonyms(spark, key_file, persons)
        assert find([target], persons, hashes, {}, []) == dict.fromkeys(of_person, 1) | {by_id: len(landed)}
        [found] = erase.find(catalog, [declaration], [Person(user, typed)])
        assert len(found.positions) == len(landed)


def test_a_failed_index_stops_no_withdrawal_of_another_root(
    offline_settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    targets = [open_target(offline_settings), open_target(offline_settings.changed(export_root=str(tmp_path / "b")))]
    addresses = {publish_note(target, "a") for target in targets}

    monkeypatch.setattr(published.index, "write", failing)
    with pytest.raises(ValueError, match="4111"):
        published.withdraw(targets, addresses)
    assert [read(target, path).withdrawn is not None for target in targets for path in paths(target)] == [True, True]
