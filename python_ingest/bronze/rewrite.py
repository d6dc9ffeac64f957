"""Rows changed in place, by compare-and-swap: the other form of the commit, next to commit.overwrite.

Iceberg's MERGE takes no snapshot that it was planned from. So the new rows are written to a branch that starts
at the base snapshot, and the table moves to the branch only if it has not moved since. A change that is cut off leaves
a branch without readers, for a day.

A batch that is committed meanwhile refuses the change. So `hold` has ingesters pause for the table: they ask `holder`
before they plan a batch.
"""

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from py4j.protocol import Py4JError
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from python_common.catalog import property_keys
from python_common.catalog.commits import CommitConflict, until_committed, wait_for_clock
from python_common.config.settings import CATALOG_NAME
from python_common.errors import UserError
from python_common.locks import lease
from python_common.spark.session import log_file
from python_ingest.bronze import commit, topic_identity
from python_ingest.bronze.commit import BatchMetadata
from python_ingest.bronze.positions import position_of

# The command that changes rows in place, where a topic is followed.
LEASE = "maintain"
# What the branches of this program begin with, by what makes them.
REPLAY, ERASE = "replay", "erase"


@contextmanager
def hold(catalog: Catalog, identifier: str) -> Iterator[None]:
    """Have ingesters pause for a table inside the block, if this process has the lease `maintain`, and while it has.

    Raises:
        UserError: the ingester's commits come first every time.
    """

    def note(holder: str) -> None:
        until_committed(
            lambda: topic_identity.set_properties(catalog.load_table(identifier), {property_keys.HOLDER: holder}),
            f"{identifier}: nothing was changed, other commits came first",
            "Run it again",
        )

    if not (number := lease.held_number(LEASE)):
        yield
        return
    note(f"{LEASE} {number}")
    try:
        yield
    finally:
        with suppress(UserError):
            note("")


def holder(catalog: Catalog, table: Table) -> str | None:
    """Return who holds a table, if its lease is still live: no batch may be planned then."""
    name, _, number = table.properties.get(property_keys.HOLDER, "").partition(" ")
    return lease.holder(catalog, name, number) if name else None


def replace_rows(
    spark: SparkSession,
    table: Table,
    writer: str,
    change: Callable[[DataFrame, int], DataFrame],
    where: str,
    purpose: str,
    schema_ids: tuple[int, ...] = (),
) -> int:
    """Replace rows by what `change` returns for the same positions; it gets the base's rows and their new number.

    `where` is a condition in SQL that only rows of `landed` meet that may be replaced; `purpose` is REPLAY or ERASE.

    Returns:
        How many rows there are; 0 without a commit.

    Raises:
        CommitConflict: another commit came first.
        UserError: Spark fails, a file of the table is damaged, or the clock is behind the table's last change.
    """
    identifier = ".".join(table.name())
    wait_for_clock(identifier, table.metadata)
    base = position_of(table)
    read_until = base.next_offsets if base.has_metadata else None
    metadata = BatchMetadata(writer, base.last_batch + 1, (), read_until, schema_ids, base.generation)
    # A separate session: the batch's metadata goes into the summary of every snapshot that it commits.
    spark = spark.newSession()
    for key, value in metadata.properties().items():
        spark.conf.set(f"spark.sql.iceberg.snapshot-property.{key}", value)
    name = f"{CATALOG_NAME}.{identifier}"
    branch = f"{purpose}_{uuid.uuid4().hex}"
    try:
        landed = spark.read.option("versionAsOf", base.snapshot_id).table(name)
        if "kafka_generation" not in landed.columns:
            landed = landed.selectExpr("*", "cast(null as int) as kafka_generation")
        rows = change(landed, metadata.batch)
        count = rows.count()
        if not count:
            return 0
        rows.createOrReplaceTempView("changed")
        same = " and landed.kafka_generation <=> changed.kafka_generation" if "kafka_generation" in rows.columns else ""
        spark.sql(f"alter table {name} create branch {branch} as of version {base.snapshot_id} retain 1 days")
        spark.sql(
            f"merge into {name}.branch_{branch} as landed using changed"
            " on landed.kafka_partition = changed.kafka_partition and landed.kafka_offset = changed.kafka_offset"
            f"{same} and ({where})"
            " when matched then update set *"
        )
        spark.sql(f"call {CATALOG_NAME}.system.fast_forward('{identifier}', 'main', '{branch}')")
    except (PySparkException, Py4JError) as error:
        # It may have been committed and its answer lost: only the table knows.
        current = table.refresh().current_snapshot()
        if commit.committed(table, metadata) is None:
            moved = current is not None and current.snapshot_id != base.snapshot_id
            # Another process may have changed no more than a column or a property.
            if moved or commit.is_refusal(error):
                raise CommitConflict("another commit came first") from None
            raise UserError(
                f"{identifier}: Spark failed ({commit.error_name(error)}); nothing was changed", f"See {log_file()}"
            ) from None
    finally:
        if branch in table.refresh().refs():
            with suppress(PySparkException, Py4JError):
                spark.sql(f"alter table {name} drop branch if exists {branch}")
    return count
