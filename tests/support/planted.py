"""Searches artefacts for planted values and for the masking key, in every form in which they could have left."""

import base64
import binascii
import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq

# Every GRAM bytes long piece that begins in the first STRIDE bytes of a pattern is indexed, so that one look at every
# STRIDE-th place of an artefact meets each pattern. A pattern must be GRAM + STRIDE - 1 bytes long.
GRAM, STRIDE = 8, 4
# Iceberg keeps this much of a text as a bound.
BOUND = 16

Index = dict[bytes, list[tuple[bytes, int, str]]]


def text_forms(value: str) -> Iterator[tuple[str, bytes]]:
    """Yield the name and bytes of each form of a text: spellings, encodings of these, and digests without a key."""
    for name, spelling in {
        "raw": value,
        "trimmed": value.strip(),
        "in upper case": value.strip().upper(),
        "in lower case": value.strip().lower(),
    }.items():
        yield from byte_forms(name, spelling.encode())
        for digest in (hashlib.md5, hashlib.sha1, hashlib.sha256):
            yield f"{name}, {digest.__name__}", digest(spelling.encode()).hexdigest().encode()
    yield "escaped", json.dumps(value)[1:-1].encode()
    yield "cut to a bound", value[:BOUND].encode()


def byte_forms(name: str, value: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield bytes as they are, reversed, in hex, and in base64 at each of the three places within other bytes."""
    yield name, value
    yield f"{name}, reversed", value[::-1]
    yield f"{name}, hex", binascii.hexlify(value)
    yield f"{name}, upper hex", binascii.hexlify(value).upper()
    for before in range(3):
        encoded = base64.b64encode(bytes(before) + value)
        inside = encoded[-(-before * 8 // 6) : (before + len(value)) * 8 // 6]
        yield f"{name}, base64", inside
        yield f"{name}, url base64", inside.replace(b"+", b"-").replace(b"/", b"_")


def index(patterns: Iterable[tuple[str, bytes]]) -> Index:
    """Return an index of named patterns for `search`."""
    forms: Index = defaultdict(list)
    for name, pattern in set(patterns):
        assert len(pattern) >= GRAM + STRIDE - 1, f"too short to search for: {name}"
        for start in range(STRIDE):
            forms[pattern[start : start + GRAM]].append((pattern, start, name))
    return dict(forms)


def index_of_texts(values: dict[str, set[str]]) -> Index:
    """Return an index of all forms of texts; a pattern's name has the field and the form, never the value."""
    return index(
        (f"{field} {form}", pattern)
        for field, texts in values.items()
        for text in texts
        for form, pattern in text_forms(text)
    )


def masking_key(file: Path) -> Index:
    """Return an index of all forms of the key and its pads."""
    pads = bytes.fromhex(file.read_text().strip().split(":")[1])
    inner, outer = pads[:64], pads[64:]
    secrets = {"key": bytes(byte ^ 0x36 for byte in inner).rstrip(b"\0"), "inner pad": inner, "outer pad": outer}
    return index(form for name, value in secrets.items() for form in byte_forms(name, value))


def search(patterns: Index, artefact: bytes) -> set[str]:
    """Return the names of the patterns that are somewhere in an artefact."""
    return {
        name
        for at in range(0, len(artefact), STRIDE)
        for pattern, start, name in patterns.get(artefact[at : at + GRAM], ())
        if start <= at and artefact.startswith(pattern, at - start)
    }


def assert_nothing_of(patterns: Index, artefacts: Iterable[tuple[str, bytes]]) -> None:
    """Fail with the paths and forms alone: a leaked value must not be printed by the test that found it."""
    matches_by_path = {path: matches for path, artefact in artefacts if (matches := search(patterns, artefact))}
    assert not matches_by_path


def content(path: Path) -> bytes:
    """Return the content of a file: of compressed formats the values, a number also as text."""
    if path.suffix == ".parquet":
        try:
            return b"\n".join(_spelled(pq.ParquetFile(path).read().to_pydict()))
        except pa.ArrowInvalid:  # a writer that was killed left it without a footer
            return path.read_bytes()
    if path.suffix == ".avro":
        with path.open("rb") as file:
            return b"\n".join(chain.from_iterable(_spelled(record) for record in fastavro.reader(file)))
    return path.read_bytes()


def _spelled(value: Any) -> Iterator[bytes]:
    if isinstance(value, dict):
        for key, part in value.items():
            yield from chain(_spelled(key), _spelled(part))
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _spelled(part)
    elif isinstance(value, bytes):
        yield value
        yield str(int.from_bytes(value, "little", signed=True)).encode() if len(value) == 8 else b""
    elif value is not None:
        yield str(value).encode()
