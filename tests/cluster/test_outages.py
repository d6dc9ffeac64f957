"""Stores that are away for a moment: work goes on by itself or ends with its cause, and nothing is lost or doubled."""

from dataclasses import dataclass
from typing import Annotated

import pytest
from pyiceberg.catalog import Catalog

from python_common.catalog.catalog import load_catalog
from python_common.catalog.small_table import SmallTable
from python_common.config.settings import Settings
from python_common.failure import to_user_error
from python_export.publishing.manifest import published
from python_export.publishing.target import open_target
from tests.support.services.postgres import Postgres
from tests.support.services.weed import Weed
from tests.support.versions import publish_content


@dataclass(frozen=True)
class Note:
    name: Annotated[str, "what it is"]
    text: Annotated[str, "its text"]


TABLE = SmallTable("ops.notes", Note)
Rows = dict[str, Note]


def noted(name: str) -> Rows:
    return {name: Note(name, "noted")}


def assert_it_can_be_done_again(catalog: Catalog) -> None:
    """See that a change that failed is not there, and that it is once it is done again."""
    assert TABLE.rows(catalog).keys() == {"before"}
    assert TABLE.change(catalog, lambda rows: {**rows, **noted("after")}).keys() == {"before", "after"}


def test_a_change_whose_postgresql_stops_can_be_done_again(settings: Settings, postgres: Postgres) -> None:
    catalog = load_catalog(settings)
    TABLE.change(catalog, lambda rows: noted("before"))

    def stop(rows: Rows) -> Rows:
        postgres.stop()
        return {**rows, **noted("after")}

    try:
        with pytest.raises(Exception) as raised:
            TABLE.change(catalog, stop)
        message = str(to_user_error(raised.value, settings))
        with pytest.raises(Exception) as again:
            TABLE.rows(catalog)
    finally:
        postgres.start()
    for text in (message, str(to_user_error(again.value, settings))):
        assert text.startswith(f"The catalog at {settings.catalog_uri} is unavailable (Connection refused"), text
        assert "Nothing is lost" in text
    assert_it_can_be_done_again(catalog)


def test_a_change_while_the_store_is_away_can_be_done_again(weed: Weed, in_s3: Settings) -> None:
    catalog = load_catalog(in_s3)
    TABLE.change(catalog, lambda rows: noted("before"))
    with weed.away():
        with pytest.raises(Exception) as raised:
            TABLE.change(catalog, lambda rows: {**rows, **noted("after")})
        message = str(to_user_error(raised.value, in_s3))
        assert "cannot be read (AWS Error" in message, message
        assert "check that its store answers" in message
        assert "damaged" not in message
    assert_it_can_be_done_again(catalog)


def test_an_upload_while_the_store_is_away_publishes_one_version(weed: Weed, in_s3: Settings) -> None:
    target = open_target(in_s3)
    with weed.away():
        try:
            outcome = publish_content(target, "note\na\n").manifest.path
        except Exception as error:
            outcome = str(to_user_error(error, in_s3))
    assert outcome == "events/2020-W53/v1" or "exports cannot be used (NewConnectionError)" in outcome, outcome
    publish_content(target, "note\na\n")
    [only] = published(target)
    assert (only.path, target.read(f"{only.path}/{only.file}")) == ("events/2020-W53/v1", b"note\na\n")
