"""Decodes the stored bytes again, by fastavro and the registry's schemas, and compares the stored columns.

It shares the registry client with the ingester, and no merging of schemas or decoding. A reported difference names its
path, never a value. What fastavro cannot judge is counted, with the reason.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.types import IcebergType

from python_ingest.declare.spark_types import struct
from python_ingest.declare.table_layout import METADATA_COLUMNS, RESERVED
from python_ingest.kafka.message import schema_id
from python_ingest.kafka.registry import Registered, Registry
from python_ingest.verify.avro_values import NotCompared, Reader, Unreadable, renamed
from python_ingest.verify.bronze_rows import BronzeTable, is_erased
from python_ingest.verify.report import Report

# Those of the ingester's columns that follow from the bytes of key and value.
DECODED = ("kafka_key", "key_schema_id", "value_schema_id")
IDS_OF_DEAD_LETTERS = 1_000
# For these the bytes alone decide whether a record can be decoded; for all others the registry, or the columns.
LASTING_REASONS = ("not_registry_avro", "decode_failed")
# For these neither bytes nor registry decide, and no replay changes them.
FINAL_REASONS = ("unknown_framing", "timestamp_out_of_range")
FACTS = ("kafka_partition", "kafka_offset", "kafka_raw_key", "kafka_raw_value", "decode_error", "key_error")

Columns = dict[str, Any]


@dataclass(frozen=True)
class _Row:
    """What of a stored row is not decoded, in the order of FACTS."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    error: str | None
    key_error: str | None


def compare_decoded(report: Report, bronze: BronzeTable, key: str, registry: Registry) -> None:
    """Decode the stored rows, or a sample of them, again, and add to the report what differs. `key` is as declared.

    Raises:
        UserError: the registry does not answer, or a file of the table is damaged.
    """
    comparison = _Comparison(report, bronze, key, registry)
    percent, seed = (report.sample.percent, report.sample.seed) if report.sample is not None else (100.0, 0)
    for rows in bronze.pieces(percent, seed):
        comparison.compare(rows)
    comparison.note()


class _Comparison:
    def __init__(self, report: Report, bronze: BronzeTable, key: str, registry: Registry) -> None:
        self._report = report
        self._key = key
        self._types = bronze.columns()
        self._payload = {name: column for name, column in self._types.items() if name not in METADATA_COLUMNS}
        # A field whose name is reserved is known by that name, too.
        prefixed = {name.removeprefix("value_"): name for name in self._payload if name.startswith("value_")}
        fields = {field: self._payload[name] for field, name in prefixed.items() if _is_taken(field)}
        self._values = _Schemas(registry, bronze.schemas("value"), fields | self._payload, self._payload.get("value"))
        self._keys = _Schemas(registry, bronze.schemas("key"), {}, self._types.get("kafka_key"))
        self._issues: dict[tuple[int, str], list[int]] = defaultdict(list)
        self._later = 0
        self._not_compared: Counter[str] = Counter()

    def compare(self, rows: pa.Table) -> None:
        """Compare the columns of some rows."""
        rows = rows.filter(pc.field("kafka_partition").is_valid() & pc.field("kafka_offset").is_valid())
        facts = [_Row(*cells) for cells in zip(*(plain_column(rows, name).to_pylist() for name in FACTS), strict=True)]
        self._values.resolve_schemas(schema_id(row.value) for row in facts if row.error is None)
        # Bytes that only look like registry Avro name any number of ids.
        dead = (schema_id(row.value) for row in facts if row.error is not None)
        self._values.resolve_schemas(dead, most=IDS_OF_DEAD_LETTERS)
        expected: dict[int, Columns] = {}
        for at, row in enumerate(facts):
            try:
                expected[at] = self._expected(row)
            except NotCompared as reason:
                self._not_compared[str(reason)] += 1
        self._report.decoded += sum(not is_erased(facts[at].error) for at in expected)
        for name in (*self._payload, *(name for name in DECODED if name in self._types)):
            column = plain_column(rows, name)
            stored = column.to_pylist()
            for at, columns in expected.items():
                if name in columns:
                    path = _difference(columns[name], stored[at], column.type)
                    if path is not None:
                        self._issue(facts[at], f"another {name}{path} than in its bytes")
        for at, columns in expected.items():
            for name in columns.keys() - self._types.keys():
                if not _holds_nothing(columns[name]):
                    self._issue(facts[at], f"there is no column for {name}")
        for (partition, what), offsets in self._issues.items():
            self._report.add_offsets(partition, offsets, what)
        self._issues.clear()

    def note(self) -> None:
        """Add notes about dead letters that can be decoded now, and rows that were not compared."""
        if self._later:
            self._report.notes.append(
                f"{self._later:,} dead letters can be decoded by now: `lakehouse ingest replay {self._report.topic}`"
            )
        for reason, rows in sorted(self._not_compared.items()):
            self._report.notes.append(f"{rows:,} rows were not compared: {reason}")

    def _expected(self, row: _Row) -> Columns:
        """Return the expected columns of a row, without undecidable ones.

        Raises:
            NotCompared: the registry lacks a schema by which the row was decoded, or fastavro cannot judge the row.
        """
        nothing: Columns = dict.fromkeys(self._payload)
        if is_erased(row.error):
            return nothing | dict.fromkeys(DECODED)
        if row.error is not None and row.value is None:
            return nothing  # skipped: its bytes were not stored
        expected = nothing | self._expected_key(row) | {"value_schema_id": schema_id(row.value)}
        if row.error is None:
            try:
                return expected | self._payload_of(row.value)
            except Unreadable:
                self._issue(row, "is decoded, and its bytes cannot be")
        elif not row.error.startswith(FINAL_REASONS):
            self._judge_dead_letter(row, row.error)
        return expected

    def _judge_dead_letter(self, row: _Row, error: str) -> None:
        """Find a dead letter whose bytes can be decoded: wrongly one, or one that a replay decodes."""
        is_lasting = error.startswith(LASTING_REASONS)
        try:
            self._values.reader(row.value).read(row.value, is_refused=is_lasting)
        except Unreadable:
            return
        except NotCompared:
            if is_lasting:
                raise
            return
        if is_lasting:
            self._issue(row, "is a dead letter, and its bytes can be decoded")
        elif error.startswith("unknown_schema_id") or schema_id(row.value) in self._values.known:
            self._later += 1

    def _expected_key(self, row: _Row) -> Columns:
        if self._key == "bytes":
            return {"kafka_key": row.key, "key_schema_id": None}
        key: Any = None
        if self._key == "string":
            with suppress(UnicodeDecodeError):
                key = None if row.key is None else row.key.decode()
            return {"kafka_key": key, "key_schema_id": None}
        number = schema_id(row.key)
        if number in self._keys.known and row.key_error is None:
            with suppress(Unreadable):
                key = self._keys.reader(row.key).read(row.key)
        return {"kafka_key": key, "key_schema_id": number}

    def _payload_of(self, value: bytes | None) -> Columns:
        if value is None:
            return {}
        reader = self._values.reader(value)
        decoded = reader.read(value)
        if not reader.is_record:
            return {"value": decoded}
        return {f"value_{name}" if _is_taken(name) else name: part for name, part in (decoded or {}).items()}

    def _issue(self, row: _Row, what: str) -> None:
        self._issues[row.partition, what].append(row.offset)


class _Schemas:
    """The schemas of the values or of the keys.

    The `known` ones have columns, but for the paths of omitted fields: `fields` those of a record, or the one of the
    type `column`.
    """

    def __init__(
        self, registry: Registry, known: dict[int, set[str]], fields: dict[str, IcebergType], column: IcebergType | None
    ) -> None:
        self.known = known
        self._registry = registry
        self._fields = struct(fields) if fields else column
        self._column = column
        self._registered: dict[int, Registered | None] = {}
        self._readers: dict[int, Reader | Unreadable | NotCompared] = {}
        self.resolve_schemas(known)

    def resolve_schemas(self, numbers: Iterable[int | None], most: int | None = None) -> None:
        """Ask the registry for schemas that it was not asked for, unless it was asked for so many already."""
        new = {number for number in numbers if number is not None} - self._registered.keys()
        if most is not None:
            new = set(sorted(new)[: max(0, most - len(self._registered))])
        if new:
            answers = self._registry.schemas(new)
            self._registered |= {number: answers.get(number) for number in new}
            # A new schema may have an alias.
            self._readers.clear()

    def reader(self, part: bytes | None) -> Reader:
        """Return the reader of a key or value.

        Raises:
            Unreadable: it has no schema id, or one of a schema that is not Avro.
            NotCompared: the registry lacks its schema, or fastavro refuses it.
        """
        number = schema_id(part)
        if number is None:
            raise Unreadable("no schema id")
        if number not in self._readers:
            self._readers[number] = self._new_reader(number)
        reader = self._readers[number]
        if isinstance(reader, Exception):
            raise reader.with_traceback(None)
        return reader

    def _new_reader(self, number: int) -> Reader | Unreadable | NotCompared:
        registered = self._registered.get(number)
        if registered is None:
            return NotCompared(f"the registry lacks schema {number}")
        if registered.schema_type != "AVRO":
            return Unreadable("not Avro")
        texts = [text for schema in self._registered.values() if schema for text in (schema.text, *schema.references)]
        columns = self._fields, self._column, renamed(texts), self.known.get(number, ())
        try:
            return Reader(registered.text, registered.references, *columns)
        except NotCompared as reason:
            return NotCompared(f"schema {number}: {reason}")


def _is_taken(name: str) -> bool:
    return name.lower() in (*METADATA_COLUMNS, *RESERVED)


def plain_column(rows: pa.Table, name: str) -> pa.ChunkedArray:
    """Return a column with times as numbers, since datetime cannot hold all; NULLs if its file lacks it."""
    if name not in rows.column_names:
        return pa.chunked_array([pa.nulls(len(rows))])
    return rows[name].cast(_plain_type(rows[name].type))


def _plain_type(arrow_type: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(arrow_type):
        return pa.struct([field.with_type(_plain_type(field.type)) for field in arrow_type])
    if pa.types.is_map(arrow_type):
        return pa.map_(arrow_type.key_field, arrow_type.item_field.with_type(_plain_type(arrow_type.item_type)))
    if pa.types.is_list(arrow_type) or pa.types.is_large_list(arrow_type):
        return pa.large_list(arrow_type.value_field.with_type(_plain_type(arrow_type.value_type)))
    if pa.types.is_timestamp(arrow_type):
        return pa.int64()
    return pa.int32() if pa.types.is_date32(arrow_type) else arrow_type


def _difference(wanted: Any, stored: Any, arrow_type: pa.DataType) -> str | None:
    """Return the path inside a column at which two values differ, None if equal; the type is of the stored value."""
    if wanted is None or stored is None:
        return None if wanted is stored else ""
    children: list[tuple[str, Any, Any, pa.DataType]] = []
    if pa.types.is_struct(arrow_type):
        types = {field.name: field.type for field in arrow_type}
        # A field that its file lacks is NULL.
        lacking = [name for name in wanted if name not in types and not _holds_nothing(wanted[name])]
        children = [
            (f".{name}", wanted.get(name), stored.get(name), types.get(name, pa.null())) for name in (*types, *lacking)
        ]
    elif pa.types.is_map(arrow_type):
        values = dict(stored)
        if len(stored) != len(wanted) or values.keys() != wanted.keys():
            return ""
        children = [(".value", wanted[name], values[name], arrow_type.item_type) for name in values]
    elif pa.types.is_large_list(arrow_type):
        if len(stored) != len(wanted):
            return ""
        children = [(".element", *pair, arrow_type.value_type) for pair in zip(wanted, stored, strict=True)]
    elif wanted != stored and not (pa.types.is_floating(arrow_type) and math.isnan(wanted) and math.isnan(stored)):
        return ""
    for step, wanted_part, stored_part, below in children:
        path = _difference(wanted_part, stored_part, below)
        if path is not None:
            return step + path
    return None


def _holds_nothing(value: Any) -> bool:
    """Return whether a value needs no column: NULL, or a record, array or map of such values."""
    parts = value.values() if isinstance(value, dict) else value
    return value is None or (isinstance(value, dict | list) and all(map(_holds_nothing, parts)))
