"""Tables with the metadata of many batches: what the next batch, and a check without new records, cost after them."""

import time
import uuid
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

from pyiceberg.conversions import to_bytes
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    write_manifest,
    write_manifest_list,
)
from pyiceberg.serializers import ToOutputFile
from pyiceberg.table import Table
from pyiceberg.table.refs import SnapshotRef
from pyiceberg.table.snapshots import Operation, Snapshot, SnapshotLogEntry, Summary
from pyiceberg.typedef import Record
from pyiceberg.types import PrimitiveType

from bench.ingest.topic import PARTITIONS
from python_common.catalog.catalog import load_catalog
from python_common.config.settings import Settings
from python_ingest.bronze import tables, topic_identity
from python_ingest.bronze.commit import BatchMetadata
from python_ingest.declare.topics import Declaration
from python_ingest.kafka.admin import TopicState
from python_ingest.kafka.offset_range import OffsetRange

EVERY_MS = 30_000
PER_DAY = 24 * 3_600_000 // EVERY_MS
RECORDS = 1_000
ENTRIES_PER_MANIFEST = 30_000
DAY_MICROSECONDS = 24 * 3_600_000_000


def plant(settings: Settings, state: TopicState, name: str, batches: int, retained: int) -> None:
    """Make a table of a topic that has the metadata of many batches, and the newest of their snapshots.

    There was a batch of 1,000 records each 30 seconds, of a former topic of the name. The table is rebound to the
    present one, so that it can be landed. The data files do not exist, for landing reads none.
    """
    catalog, declaration = load_catalog(settings, create=True), Declaration(state.topic, "bench", name)
    table = tables.create(catalog, declaration)
    topic_identity.record_topic_id(table, replace(state, topic_id="former"))
    now = time.time_ns() // 1_000_000
    metadata_directory = f"{table.location()}/metadata"
    manifests = [*_manifests(table, metadata_directory, batches, now)]
    manifest_list = f"{metadata_directory}/snap-{uuid.uuid4()}.avro"
    output = table.io.new_output(manifest_list)
    with write_manifest_list(2, output, batches, batches - 1, batches, "deflate") as writer:
        writer.add_manifests(manifests)
    snapshots = [
        Snapshot.model_validate(
            {
                "snapshot-id": batch,
                "parent-snapshot-id": batch - 1 or None,
                "sequence-number": batch,
                "timestamp-ms": _landed_at(batch, batches, now),
                "manifest-list": manifest_list,
                "summary": _summary(batch),
                "schema-id": 0,
            }
        )
        for batch in range(batches - retained + 1, batches + 1)
    ]
    metadata = table.metadata.model_copy(
        update={
            "snapshots": snapshots,
            "snapshot_log": [
                SnapshotLogEntry.model_validate(
                    {"snapshot-id": snapshot.snapshot_id, "timestamp-ms": snapshot.timestamp_ms}
                )
                for snapshot in snapshots
            ],
            "current_snapshot_id": batches,
            "refs": {"main": SnapshotRef.model_validate({"snapshot-id": batches, "type": "branch"})},
            "last_sequence_number": batches,
            "last_updated_ms": now,
        }
    )
    location = f"{metadata_directory}/00009-{uuid.uuid4()}.metadata.json"
    ToOutputFile.table_metadata(metadata, table.io.new_output(location))
    catalog.drop_table(declaration.identifier)
    table = catalog.register_table(declaration.identifier, location)
    topic_identity.rebind(table, declaration, state, dict.fromkeys(state.end, 0))


def _manifests(table: Table, directory: str, batches: int, now: int) -> Iterator[ManifestFile]:
    schema, spec = table.schema(), table.spec()
    of_table = _entries(table, batches, now)
    while entries := [*islice(of_table, ENTRIES_PER_MANIFEST)]:
        output = table.io.new_output(f"{directory}/{uuid.uuid4()}-m0.avro")
        with write_manifest(2, spec, schema, output, batches, "deflate") as writer:
            for entry in entries:
                writer.existing(entry)
        yield writer.to_manifest_file()


def _entries(table: Table, batches: int, now: int) -> Iterator[ManifestEntry]:
    fields = {field.name: field for field in table.schema().fields}
    types = {name: field.field_type for name, field in fields.items() if isinstance(field.field_type, PrimitiveType)}
    counts = {field.field_id: RECORDS // PARTITIONS for field in fields.values()}
    nulls = {**dict.fromkeys(counts, 0), fields["kafka_generation"].field_id: RECORDS // PARTITIONS}

    def bounds(**values: int) -> dict[int, bytes]:
        return {fields[name].field_id: to_bytes(types[name], value) for name, value in values.items()}

    for batch in range(1, batches + 1):
        landed_at = _landed_at(batch, batches, now) * 1_000
        first = (batch - 1) * RECORDS // PARTITIONS
        for partition in range(PARTITIONS):
            same = {"kafka_partition": partition, "ingest_batch": batch, "ingested_at": landed_at}
            file = DataFile.from_args(
                content=DataFileContent.DATA,
                file_path=f"{table.location()}/data/{batch:08}-{partition}-{uuid.UUID(int=batch)}.parquet",
                file_format=FileFormat.PARQUET,
                partition=Record(landed_at // DAY_MICROSECONDS, partition),
                record_count=RECORDS // PARTITIONS,
                file_size_in_bytes=40_000,
                value_counts=counts,
                null_value_counts=nulls,
                lower_bounds=bounds(kafka_offset=first, **same),
                upper_bounds=bounds(kafka_offset=first + RECORDS // PARTITIONS - 1, **same),
            )
            yield ManifestEntry.from_args(
                status=ManifestEntryStatus.EXISTING,
                snapshot_id=batch,
                sequence_number=batch,
                file_sequence_number=batch,
                data_file=file,
            )


def _summary(batch: int) -> Summary:
    until = batch * RECORDS // PARTITIONS
    ranges = tuple(OffsetRange(partition, until - RECORDS // PARTITIONS, until) for partition in range(PARTITIONS))
    metadata = BatchMetadata(str(uuid.UUID(int=0)), batch, ranges, dict.fromkeys(range(PARTITIONS), until), (1,))
    added = {"added-data-files": PARTITIONS, "added-records": RECORDS, "added-files-size": 40_000 * PARTITIONS}
    total = {"total-data-files": batch * PARTITIONS, "total-records": batch * RECORDS, "total-delete-files": 0}
    figures = {name: str(figure) for name, figure in {**added, **total}.items()}
    return Summary(Operation.OVERWRITE, **figures, **metadata.properties())


def _landed_at(batch: int, batches: int, now: int) -> int:
    return now - (batches - batch + 1) * EVERY_MS
