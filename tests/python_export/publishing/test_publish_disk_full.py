"""No room at each place that an export writes to: nothing half done is public, the error is true, and then it works.

The system itself refuses to make a file longer (RLIMIT_FSIZE, "File too large"), as it does on a full disk.
"""

from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog

from python_common.errors import UserError
from python_export.csv import csv_file
from python_export.csv.compare import verify
from python_export.csv.write import write
from python_export.datasets.snapshot import Source
from python_export.publishing.directory import Directory
from python_export.publishing.manifest import published
from python_export.publishing.publish import publish
from python_export.publishing.target import Target, staging
from tests.support.disk import no_room_beyond
from tests.support.hostile_rows import DATASET, MONDAY, SCHEMA, arrow_table, current_source, draft

MB = 1024 * 1024


def export(target: Target, content: str) -> int:
    """Publish as a run does, and return the version."""
    with staging(target.staging) as directory:
        alone = directory / "events" / "version"
        alone.mkdir(parents=True)
        (alone / "part-0.csv").write_text(content)
        return publish(target, alone / "part-0.csv", draft("2020-W53"), (), directory / "scratch").manifest.version


def test_no_room_for_the_file(hostile_source: Source, tmp_path: Path) -> None:
    file = tmp_path / "events.csv"
    with (
        pytest.raises(UserError, match=r"DuckDB could not write the file \(IOException\).* check that there is room"),
        no_room_beyond(100),
    ):
        write(hostile_source, file, tmp_path / "scratch")
    write(hostile_source, file, tmp_path / "scratch")
    verify(file, hostile_source, tmp_path / "scratch")


def test_no_room_for_a_version(target: Target) -> None:
    # For the file, and in a directory for the manifest.
    for content in ["note\n" + "x" * 100, *["note\n"] * isinstance(target.store, Directory)]:
        with pytest.raises(UserError, match="The export stopped: File too large"), no_room_beyond(100):
            export(target, content)
        assert published(target) == []
    assert export(target, "note\n") == 1


def test_no_room_for_what_outgrows_memory(catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_file, "MEMORY_LIMIT", "120MB")
    rows = [(number, MONDAY, f"4111 {number}" * 20, Decimal(1), Decimal(1), 1, None, True) for number in range(150_000)]
    catalog.create_table(("shop", "exp_weekly__events"), SCHEMA).append(arrow_table(rows))
    table = current_source(catalog, replace(DATASET, order_by=("note",)))
    file = tmp_path / "staged.csv"
    file.write_text(",".join(SCHEMA.names) + "\n")
    with pytest.raises(UserError) as refusal, no_room_beyond(MB):
        verify(file, table, tmp_path / "scratch")
    assert "the file could not be compared with the table" in str(refusal.value)
    assert "check that there is room" in str(refusal.value)
    assert "4111" not in str(refusal.value)
    with pytest.raises(UserError, match="0 rows instead of 150000"):
        verify(file, table, tmp_path / "scratch")
