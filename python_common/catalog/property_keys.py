"""The keys of this project's table properties and snapshot summaries.

Existing tables have these keys, so a name never changes. Macros and models repeat some of them: macros/incremental/
(watermark.sql, provenance.sql, partitions.sql), macros/tag_tested.sql, models/ops/. Those of macros alone,
lakehouse.seeds and lakehouse.masks, are not here.
"""

import base64
import json
import zlib
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

# Properties of a bronze table: the identity of its topic.
TOPIC = "lakehouse.topic"
TOPIC_ID = "lakehouse.topic-id"
CLUSTER_ID = "lakehouse.cluster-id"
KEY_FORMAT = "lakehouse.key"
# How many times the topic was recreated, and the offset at which each partition is read since then, as JSON; a summary
# of a snapshot has the first of its batch.
GENERATION = "lakehouse.generation"
GENERATION_START = "lakehouse.generation-start"
ACCEPTED_GAPS = "lakehouse.accepted-gap."
TABLE_ID = "lakehouse.table-id"
# The greatest batch number whose snapshot expired after a rollback.
LAST_BATCH = "lakehouse.last-batch"
# A note about a schema: a side and an id follow.
NOTE = "lakehouse.note."

# The lease by which a change of rows in place holds the table, and its number: ingesters pause while it is live.
HOLDER = "lakehouse.held-by"

# Set before the first row is erased: only such a table is searched for erased rows.
HAS_ERASED_ROWS = "lakehouse.has-erased-rows"

# Summaries of the snapshots of a bronze table: the batch that one of them holds.
WRITER = "lakehouse.writer"
BATCH = "lakehouse.batch"
RANGES = "lakehouse.ranges"
READ_UNTIL = "lakehouse.read-until"
SCHEMA_IDS = "lakehouse.schema-ids"

# Properties of a model's table: the watermark of each table that it reads, whose name follows, and its snapshot.
READ = "lakehouse.read."
NOTED_AT = "lakehouse.noted-at"

# Properties of an export table: when an erasure expired a snapshot; its id follows.
ERASED_SNAPSHOT = "lakehouse.erased-snapshot."

# Properties of an export table: which snapshot was tested of a week, which follows, and the SHA-256 of the compiled SQL
# of the export and all that it comes from.
SQL = "lakehouse.sql."

# Property of a table or view in a fork: the metadata file of production that it was made of.
FORK_OF = "lakehouse.fork-of"

# Summaries of the snapshots of an export table: the build that wrote one of them.
INVOCATION_ID = "lakehouse.invocation-id"
GIT_COMMIT = "lakehouse.git-commit"
SMALL_GROUP_THRESHOLD = "lakehouse.small-group-threshold"
SOURCES = "lakehouse.sources"


def schema(side: str) -> str:
    """Return what the properties with the schemas of a side (`value` or `key`) begin with; an id follows."""
    return f"lakehouse.{side}-schema."


def schema_text(schema: Any) -> str:
    """Return a writer's schema as the value of a property, compressed: each commit of a table writes its properties."""
    return base64.b64encode(zlib.compress(json.dumps(schema, separators=(",", ":")).encode(), level=9)).decode()


# A schema is read several times per batch, and never changed.
@lru_cache(1_000)
def parsed_schema(text: str) -> Any:
    """Return the writer's schema that a property has; up to 0.5 the value was the JSON, which Base64 cannot be."""
    return json.loads(text if text[0] in '{["' else zlib.decompress(base64.b64decode(text)))


def fingerprint(side: str) -> str:
    """Return what the properties with the fingerprints of a side's schemas begin with; an id follows."""
    return f"lakehouse.{side}-schema-fingerprint."


def generation(entries: Mapping[str, str]) -> int:
    """Return how often a topic was recreated, by the properties of its table or the summary of a batch."""
    return int(entries.get(GENERATION, 0))


def generation_start(properties: Mapping[str, str]) -> dict[int, int]:
    """Return by partition the first offset that is landed of a recreated topic."""
    return {int(partition): offset for partition, offset in json.loads(properties.get(GENERATION_START, "{}")).items()}


def accepted_gap(partition: int) -> str:
    """Return what the properties with the accepted gaps of a partition begin with; the first offset follows."""
    return f"{ACCEPTED_GAPS}{partition}."


def accepted_gaps(properties: Mapping[str, str]) -> dict[tuple[int, int], int]:
    """Return the offset after each accepted gap, by partition and first offset."""
    names = {name: name.removeprefix(ACCEPTED_GAPS).split(".") for name in properties if name.startswith(ACCEPTED_GAPS)}
    return {(int(partition), int(first)): int(properties[name]) for name, (partition, first) in names.items()}
