"""Records of many columns, schema versions and sizes: what each costs the ingester, against the narrowest."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from io import BytesIO
from pathlib import Path
from random import Random
from typing import Any

from fastavro import parse_schema, schemaless_writer
from pyiceberg.table import Table
from rich.console import Console

from bench import table_of
from bench.ingest import topic
from bench.ingest.landings import Bench
from python_common.output import console

NARROWEST = 9
VERSIONS = 1, 100
# Bytes of a record, and the most records of a topic; wide topics have fewer.
SIZES = {100: 300_000, 1_000: 100_000, 100_000: 1_500}
MOST_VALUES = 10_000_000
WIDTH = 120
POOL, POOL_VALUES, POOL_BYTES = 100_000, 2_000_000, 30_000_000
# The types of columns, in turn: the bytes of a value besides those of a NULL, and a random one.
TYPES: dict[str, tuple[Any, int, Callable[[Random], Any]]] = {
    "text": ("string", 9, lambda rng: rng.randbytes(4).hex()),
    "count": ("int", 4, lambda rng: rng.randrange(1_000_000, 10_000_000)),
    "amount": (
        {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2},
        4,
        lambda rng: Decimal(rng.randrange(100_000, 1_000_000)).scaleb(-2),
    ),
    "moment": ({"type": "long", "logicalType": "timestamp-millis"}, 6, lambda rng: rng.randrange(10**12)),
    "share": ("double", 8, lambda rng: rng.random()),
    "flag": ("boolean", 1, lambda rng: rng.random() < 0.5),
    "day": ({"type": "int", "logicalType": "date"}, 3, lambda rng: rng.randrange(20_000, 20_400)),
}


@dataclass(frozen=True)
class Shape:
    """The columns, schema versions and bytes of a topic's records."""

    columns: int
    versions: int
    size: int

    @property
    def records(self) -> int:
        """How many records the topic has."""
        return min(SIZES[self.size], MOST_VALUES // self.columns)

    def schemas(self) -> list[dict[str, Any]]:
        """Return the versions: each adds a symbol to an enum and, as far as the width allows, a nullable field."""
        kinds = [*TYPES]
        names = [f"{kinds[number % len(kinds)]}_{number}" for number in range(self.columns - 2)]
        nullable = [{"name": name, "type": ["null", TYPES[name.split("_")[0]][0]], "default": None} for name in names]
        versions = []
        for version in range(self.versions):
            symbols = [f"KIND_{number}" for number in range(version + 1)]
            kind = {"type": "enum", "name": "kinds", "symbols": symbols, "default": "KIND_0"}
            required = [{"name": "id", "type": "long"}, {"name": "kind", "type": kind}]
            lacking = min(self.versions - 1 - version, self.columns - NARROWEST)
            fields = [*required, *nullable[: len(nullable) - lacking]]
            versions.append({"type": "record", "name": "wide", "fields": fields})
        return versions


def land_widths(bench: Bench, widths: list[int]) -> None:
    """Land a topic of each shape in a new process, then again, and print the costs.

    A ratio compares with 9 columns and one version of the same size: of the CPU seconds per record of the second
    landing, and of the CPU seconds of the first.
    """
    figures = "records/s", "MB/s", "CPU s per\nmillion", "of the\nnarrowest", "first batch\nCPU s", "of the\nnarrowest"
    table = table_of("columns, versions, bytes", *figures, "metadata KB\nper commit")
    narrowest: dict[int, tuple[float, float]] = {}
    sizes = []

    def inspect(landed: Table) -> None:
        sizes.append(metadata(landed))

    for shape in shapes(widths):
        name = f"wide-{shape.columns}-{shape.versions}-{shape.size}"
        console.print(f"{name}: producing {shape.records:,} records")
        total = fill(bench, name, shape)
        with bench.start("ingester", name) as peer:
            first, second = (bench.land(peer, shape.records, shape.records, inspect=inspect) for _ in range(2))
        if first is None or second is None:
            continue
        each, start = second.cpu_seconds / shape.records, first.cpu_seconds
        of_each, of_start = narrowest.setdefault(shape.size, (each, start))
        speeds = f"{shape.records / second.seconds:,.0f}", f"{total / second.seconds / 1e6:.1f}"
        costs = f"{each * 1e6:,.1f}", f"{each / of_each:.2f}", f"{start:.1f}", f"{start / of_start:.2f}"
        row = f"{shape.columns:,}, {shape.versions}, {total / shape.records:,.0f}"
        table.add_row(row, *speeds, *costs, f"{sizes[-1] / 1e3:,.0f}")
        console.print(f"{name}: {start:.1f} CPU s, then {second.cpu_seconds:.1f}")
    Console(width=WIDTH).print(table)


def shapes(widths: list[int]) -> Iterator[Shape]:
    """Yield the shapes, narrowest first.

    A NULL takes a byte, so that 100 bytes have room for few columns. Only the narrowest and widest have 100 KB.
    """
    widths = sorted({NARROWEST, *widths})
    for size in SIZES:
        for width in widths if size < max(SIZES) else dict.fromkeys((NARROWEST, widths[-1])):
            if width <= size:
                yield from (Shape(width, versions, size) for versions in VERSIONS)


def fill(bench: Bench, name: str, shape: Shape) -> int:
    """Produce records whose ids count up, and whose versions take turns; return the bytes of their values.

    Columns have values in their order as far as the size allows, texts take the rest, and all others are NULL.
    """
    schemas = shape.schemas()
    headers = topic.register(bench.settings, name, [json.dumps(schema) for schema in schemas])
    parsed = [parse_schema(schema) for schema in schemas]
    rng, pool = Random(1), list[bytes]()
    count = max(1, min(POOL, POOL_VALUES // shape.columns, POOL_BYTES // shape.size) // shape.versions)
    for number in range(count * shape.versions):
        version, buffer = number % shape.versions, BytesIO()
        names = [field["name"] for field in schemas[version]["fields"][2:]]
        values = columns(names, shape.size, rng)
        schemaless_writer(buffer, parsed[version], {"id": 0, "kind": f"KIND_{version}"} | values)
        pool.append(buffer.getvalue()[1:])

    def value(number: int) -> bytes:
        return headers[number % len(headers)] + topic.varint(number) + pool[number % len(pool)]

    # So that all partitions have as many records.
    per_call = min(topic.PER_CALL, max(1, shape.records // topic.PARTITIONS // 10))
    topic.produce(bench.settings, name, shape.records, lambda number: b"%d" % number, value, per_call)
    # Of all records: a topic that was kept for this run may have had some already.
    return sum(len(value(number)) for number in range(shape.records))


def columns(names: list[str], size: int, rng: Random) -> dict[str, Any]:
    """Return the values of those nullable columns that a record of about so many bytes has."""
    room, values = size - 10 - len(names), {}
    for name in names:
        _, cost, value = TYPES[name.split("_")[0]]
        if room >= cost:
            room -= cost
            values[name] = value(rng)
    texts = [name for name in values if name.startswith("text")]
    more = {name: values[name] + rng.randbytes(room // len(texts) // 2).hex() for name in texts}
    return values | more


def metadata(table: Table) -> int:
    """Return the bytes of metadata that the newest commit wrote: metadata file, manifest list and new manifests."""
    snapshot = table.current_snapshot()
    if snapshot is None:
        return 0
    new = [it for it in snapshot.manifests(table.io) if it.added_snapshot_id == snapshot.snapshot_id]
    paths = table.metadata_location, snapshot.manifest_list, *(manifest.manifest_path for manifest in new)
    return sum(Path(path.removeprefix("file:")).stat().st_size for path in paths)
