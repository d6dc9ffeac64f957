"""Manifests that lead out of their version are refused, and the deliveries of a week are numbered."""

import json
from typing import Any

import pytest

from python_export.publishing.manifest import DamagedManifestError, next_delivery, read
from python_export.publishing.publish import withdraw
from python_export.publishing.target import Target
from tests.support.versions import overwrite, pointer, publish_content

WEEK, NEXT_WEEK = "2020-W53", "2021-W01"
COLUMN = {"name": "note", "type": "string", "nulls": 0}
XLSX = {"format": "xlsx", "file": "events.xlsx", "bytes": 1, "sha256": "0", "rows": 1}
EDITS: dict[str, dict[str, Any]] = {
    "snapshot is no number": {"source_snapshot_id": "1e5"},
    "table without a schema": {"source_table": "lake,shop.events"},
    "column without a name": {"columns": [COLUMN | {"name": None}]},
    "column without its NULLs": {"columns": [COLUMN | {"nulls": None}]},
    "file outside the version": {"file": "../../../../secret.csv"},
    "file of the system": {"file": "/etc/passwd"},
    "spreadsheet outside the version": {"files": [XLSX | {"file": "../../../../secret.xlsx"}]},
    "dataset outside the root": {"dataset": "../elsewhere"},
    "week that is none": {"week": ".."},
}


@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS)
def test_a_manifest_that_leads_elsewhere_is_read(local: Target, edit: dict[str, Any]) -> None:
    manifest = publish_content(local, "0").manifest
    right = json.loads(manifest.text()) | {"files": [XLSX]}
    for content in (right, right | edit):
        overwrite(local, f"{manifest.path}/manifest.json", json.dumps(content).encode())
        if content == right:
            assert read(local, manifest.path).files[0].format == "xlsx"
    with pytest.raises(DamagedManifestError):
        read(local, manifest.path)


def test_deliveries_of_a_week_are_numbered(local: Target) -> None:
    # A release before 0.7 named none.
    publish_content(local, "0")
    for number in range(1, 11):
        assert next_delivery(local, WEEK) == f"{WEEK}-{number}"
        # Content of an older version is a new one, too.
        version = publish_content(local, str(number % 2), delivery=f"{WEEK}-{number}").manifest
    assert (version.version, version.supersedes, pointer(local)["version"]) == (11, 10, 11)
    withdraw(local, f"events/{WEEK}/v11", "a wrong price")
    assert next_delivery(local, WEEK) == f"{WEEK}-11"
    assert next_delivery(local, NEXT_WEEK) == f"{NEXT_WEEK}-1"
