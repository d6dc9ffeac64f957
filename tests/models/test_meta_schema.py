import copy
import json
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args

import pytest
from jsonschema import Draft202012Validator

from python_common.config.environment import PROJECT_ROOT
from python_export.datasets.declared import FORMATS
from python_export.datasets.report_spec import Chart, Excluded, Headline, Ranked, Ranking, ReportSpec
from python_ingest.declare.topics import OF_THE_SOURCE, DeadLetterLimit, Declaration, KeyFormat, OnError

SCHEMA = json.loads((PROJECT_ROOT / "models" / "meta.schema.json").read_text())
EXPORT = ("nodes", "model.retail_lakehouse.exp_weekly__order_lines")
SOURCE = ("sources", "source.retail_lakehouse.shop.shiftleft_public_addresses")
META = ("config", "meta")


@pytest.fixture(scope="module")
def manifest(parsed_project: Path) -> Any:
    return json.loads((parsed_project / "manifest.json").read_text())


@pytest.mark.parametrize(
    ("path", "key", "value"),
    [
        ((*EXPORT, *META), "exprot", {}),
        ((*EXPORT, *META), "distinct_counts", True),
        ((*EXPORT, *META, "export"), "audiense", "analysts"),
        ((*EXPORT, *META, "export"), "formats", ["xls"]),
        ((*EXPORT, *META, "export"), "hold", {"rows": 1}),
        ((*EXPORT, *META, "export", "display"), "mesures", ["quantity"]),
        ((*EXPORT, "columns", "ordered_at", *META), "pii_skan", "off: times"),
        ((*EXPORT, "columns", "ordered_at", *META), "pii_scan", "on: times"),
        ((*EXPORT, "columns", "ordered_at", *META), "allowed_values", [False]),
        ((*SOURCE, *META), "unsued", []),
        ((*SOURCE, *META), "unused", "addressid"),
        ((*SOURCE, *META, "kafka"), "producers", "shop"),
        ((*SOURCE, *META, "kafka"), "on_error", "ignore"),
        ((*SOURCE, *META, "subjects"), "customer", {"columns": ["addressid"]}),
        ((*SOURCE, "columns", "addressid", *META), "pii", "email"),
    ],
)
def test_schema_refuses_unknown_keys_and_wrong_types(
    manifest: Any, path: tuple[str, ...], key: str, value: object
) -> None:
    changed = copy.deepcopy(manifest)
    meta = changed
    for step in path:
        meta = meta[step]
    meta[key] = value
    [error] = Draft202012Validator(SCHEMA).iter_errors(changed)
    at = [*map(str, error.absolute_path)]
    assert at[: len(path)] == [*path]
    assert key in at or repr(key) in error.message


def test_schema_has_what_python_reads() -> None:
    definitions = {name: definition.get("properties", {}) for name, definition in SCHEMA["$defs"].items()}
    export, kafka = definitions["export"], definitions["kafka"]
    assert {*kafka, *OF_THE_SOURCE} == {field.name for field in fields(Declaration)}
    readers = {
        DeadLetterLimit: kafka["max_dead_letters"]["properties"],
        ReportSpec: export["display"]["properties"],
        Headline: definitions["headline"],
        Chart: definitions["chart"],
        Ranking: definitions["ranking"],
        Ranked: definitions["ranking"]["columns"]["items"]["properties"],
        Excluded: definitions["excluded"],
    }
    assert {reader: {*properties} for reader, properties in readers.items()} == {
        reader: {field.name for field in fields(reader)} for reader in readers
    }
    choices = [export["formats"]["items"]["enum"], kafka["key"]["enum"], kafka["on_error"]["enum"]]
    assert choices == [[*FORMATS], [*get_args(KeyFormat)], [*get_args(OnError)]]
