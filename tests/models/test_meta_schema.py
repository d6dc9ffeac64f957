import json
from dataclasses import fields
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import get_args

from jsonschema import Draft202012Validator

from python_common.config.environment import PROJECT_ROOT
from python_export.datasets.declared import FORMATS
from python_export.datasets.report_spec import Chart, Excluded, Headline, Ranked, Ranking, ReportSpec
from python_ingest.declare.topics import DeadLetterLimit, Declaration, KeyFormat, OnError

SCHEMA = json.loads((PROJECT_ROOT / "models" / "meta.schema.json").read_text())
EXPORT = ("nodes", "model.retail_lakehouse.exp_weekly__order_lines")
SOURCE = ("sources", "source.retail_lakehouse.shop.shiftleft_public_addresses")
META = ("config", "meta")


# Where a key gets a value that is unknown or wrong there.
WRONG = [
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
]


def test_schema_refuses_unknown_keys_and_wrong_types(parsed_project: Path) -> None:
    manifest = json.loads((parsed_project / "manifest.json").read_text())
    assert [*Draft202012Validator(SCHEMA).iter_errors(manifest)] == []
    for path, key, value in WRONG:
        reduce(getitem, path, manifest)[key] = value
    errors = [(error.absolute_path, error.message) for error in Draft202012Validator(SCHEMA).iter_errors(manifest)]
    for path, key, _ in WRONG:
        of_place = [(at, message) for at, message in errors if (*at,)[: len(path)] == path]
        assert [at for at, message in of_place if key in at or repr(key) in message], key
    assert len(errors) == len(WRONG)


def test_schema_has_what_python_reads() -> None:
    definitions = {name: definition.get("properties", {}) for name, definition in SCHEMA["$defs"].items()}
    export, kafka = definitions["export"], definitions["kafka"]
    assert {*kafka, "schema", "table", "columns", "persons"} == {field.name for field in fields(Declaration)}
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
