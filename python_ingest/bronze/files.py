"""The files of a table's current snapshot, read from its manifests."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from pyiceberg.manifest import DataFile, DataFileContent
from pyiceberg.table import Table

from python_common.catalog.catalog import translate_read_errors

# Iceberg's default of 512 MB is for clusters; a file of this size is sorted in the memory of one machine.
TARGET_FILE_BYTES = 128 * 1024 * 1024


@dataclass(frozen=True)
class TableSize:
    """Counts of a table's current snapshot, each with the text of its metric.

    A file is small if it has less than a quarter of the target size, and its partition has another such file.
    """

    data_files: Annotated[int, "Data files in the bronze table."]
    small_files: Annotated[int, "Data files that compaction could merge."]
    delete_files: Annotated[int, "Delete files in the bronze table."]
    data_bytes: Annotated[int, "Size of data and delete files."]
    manifests: Annotated[int, "Manifests of the bronze table's current snapshot."]
    snapshots: Annotated[int, "Snapshots of the bronze table."]


def target_file_bytes(table: Table) -> int:
    """Return the target size of compaction: the table's property, else TARGET_FILE_BYTES."""
    return int(table.properties.get("write.target-file-size-bytes", TARGET_FILE_BYTES))


def each_file(table: Table) -> Iterator[DataFile]:
    """Yield the data and delete files of the current snapshot; a UserError names a manifest that cannot be read."""
    snapshot = table.current_snapshot()
    if snapshot is None:
        return
    with translate_read_errors(snapshot.manifest_list):
        manifests = snapshot.manifests(table.io)
    for manifest in manifests:
        with translate_read_errors(manifest.manifest_path):
            entries = manifest.fetch_manifest_entry(table.io, discard_deleted=True)
        yield from (entry.data_file for entry in entries)


def size_of(table: Table, files: list[DataFile]) -> TableSize:
    """Return the counts for the files that `each_file` gave."""
    data = [file for file in files if file.content == DataFileContent.DATA]
    limit = target_file_bytes(table) / 4
    small = Counter((file.spec_id, str(file.partition)) for file in data if file.file_size_in_bytes < limit)
    snapshot = table.current_snapshot()
    return TableSize(
        data_files=len(data),
        small_files=sum(count for count in small.values() if count > 1),
        delete_files=len(files) - len(data),
        data_bytes=sum(file.file_size_in_bytes for file in files),
        manifests=len(snapshot.manifests(table.io)) if snapshot else 0,
        snapshots=len(table.snapshots()),
    )
