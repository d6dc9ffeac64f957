"""A small table that another release made: its columns are not those of this one."""

from dataclasses import dataclass
from typing import Annotated

from python_common.catalog.catalog import load_catalog
from python_common.catalog.small_table import SmallTable
from python_common.config.settings import Settings


@dataclass(frozen=True)
class Older:
    name: Annotated[str, "the key"]
    attempts: Annotated[int, "a column that this release lacks"]
    state: Annotated[str, "a column of both"]


@dataclass(frozen=True)
class Newer:
    name: Annotated[str, "the key"]
    state: Annotated[str, "a column of both"]
    root: Annotated[str | None, "a new column"] = None


def test_a_table_of_another_release_is_changed(offline_settings: Settings) -> None:
    catalog = load_catalog(offline_settings, create=True)
    older, newer = SmallTable("ops.notes", Older), SmallTable("ops.notes", Newer)
    older.change(catalog, lambda _: {"old": Older("old", 3, "pending")})
    assert newer.rows(catalog) == {"old": Newer("old", "pending")}
    after = newer.change(catalog, lambda rows: {**rows, "new": Newer("new", "pending", "/exports")})
    assert newer.rows(catalog) == after
    # It goes back.
    assert older.rows(catalog)["old"] == Older("old", None, "pending")
