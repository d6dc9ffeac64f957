"""The dictionary has what the yml declares of each column."""

import csv
import io
from typing import Any

from python_dbt.manifest import Column, Node
from python_dbt.pii import masks
from python_export.datasets import dictionary
from python_export.datasets.dictionary import Field


def test_no_text_of_the_dictionary_is_run_by_a_spreadsheet() -> None:
    field = Field("note", "string", "=1", description="@SUM(A1)", allowed_values=("-1", "1"))
    [row] = csv.DictReader(io.StringIO(dictionary.text([field])))
    assert (row["unit"], row["description"], row["allowed_values"]) == ("'=1", "'@SUM(A1)", "'-1 | 1")
    assert row["name"] == "note"


def test_a_part_of_a_value_is_no_quasi_identifier() -> None:
    """A new mask is either a pseudonym or among those that generalise."""
    names = {name for ways in masks.load().classes.values() for name in ways}
    metas: dict[str, dict[str, Any]] = {name: {"pii": "birth", "mask": name} for name in sorted(names)}
    metas |= {"city": {"quasi": True}, "price": {}}
    columns = {name: Column("string", meta=meta) for name, meta in metas.items()}
    described = dictionary.of_model(Node("model.p.one", "model", "one", "exports", columns=columns))
    quasi = {field.name for field in described if field.is_quasi_identifier}
    assert quasi == {"city", *names - {"pseudonym", "as_is"}}

    rows = list(csv.DictReader(io.StringIO(dictionary.text(described, 7))))
    assert {row["name"]: row["k_anonymity"] for row in rows} == {name: "7" if name in quasi else "" for name in metas}
    assert {row["k_anonymity"] for row in csv.DictReader(io.StringIO(dictionary.text(described)))} == {""}
