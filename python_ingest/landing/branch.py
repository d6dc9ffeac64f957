"""Rows changed in place, by compare-and-swap: the other form of the commit, beside commit.overwrite.

Iceberg's MERGE cannot be told which snapshot it was planned from. So the new rows are written to a branch that starts
at the base snapshot, and the table moves to the branch only if it has not moved since. A change that is cut off leaves
a branch nobody reads, for a day.
"""

import uuid
from collections.abc import Callable
from contextlib import suppress

from py4j.protocol import Py4JError
from pyiceberg.table import Table
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from lakehouse.commits import Refused, wait_for_clock
from lakehouse.errors import UserError
from lakehouse.settings import CATALOG_NAME
from python_ingest.landing import commit
from python_ingest.landing.commit import Ledger
from python_ingest.landing.offsets import Position
from python_ingest.landing.session import log_file

# What the branches of this program begin with, by what makes them.
REPLAY, ERASE = "replay", "erase"


def replace_rows(
    spark: SparkSession,
    table: Table,
    base: Position,
    ledger: Ledger,
    change: Callable[[DataFrame], DataFrame],
    where: str,
    purpose: str,
) -> int:
    """Put what `change` makes of the base's rows in the place of the rows at the same positions.

    `where` is a condition in SQL that only rows of `landed` meet that may be replaced; `purpose` is REPLAY or ERASE.

    Returns:
        How many rows there are; 0 without a commit.

    Raises:
        Refused: another commit came first.
        UserError: Spark fails, or the clock is behind the table's last change.
    """
    wait_for_clock(".".join(table.name()), table.metadata)
    # A session of its own: the ledger goes into the summary of every snapshot that it commits.
    spark = spark.newSession()
    for key, value in ledger.properties().items():
        spark.conf.set(f"spark.sql.iceberg.snapshot-property.{key}", value)
    identifier = ".".join(table.name())
    name = f"{CATALOG_NAME}.{identifier}"
    branch = f"{purpose}_{uuid.uuid4().hex}"
    try:
        rows = change(spark.read.option("versionAsOf", base.snapshot_id).table(name))
        found = rows.count()
        if not found:
            return 0
        rows.createOrReplaceTempView("changed")
        spark.sql(f"alter table {name} create branch {branch} as of version {base.snapshot_id} retain 1 days")
        spark.sql(
            f"merge into {name}.branch_{branch} as landed using changed"
            " on landed.kafka_partition = changed.kafka_partition and landed.kafka_offset = changed.kafka_offset"
            f" and ({where})"
            " when matched then update set *"
        )
        spark.sql(f"call {CATALOG_NAME}.system.fast_forward('{identifier}', 'main', '{branch}')")
    except (PySparkException, Py4JError) as error:
        # It may have been committed, its answer lost: only the table knows.
        current = table.refresh().current_snapshot()
        if commit.committed(table, ledger) is None:
            moved = current is not None and current.snapshot_id != base.snapshot_id
            # Another process may have changed no more than a column or a property.
            if moved or any(refusal in str(error) for refusal in commit.REFUSALS):
                raise Refused("another commit came first") from None
            raise UserError(
                f"{identifier}: Spark failed ({commit.error_name(error)}); nothing was changed", f"See {log_file()}"
            ) from None
    finally:
        if branch in table.refresh().refs():
            with suppress(PySparkException, Py4JError):
                spark.sql(f"alter table {name} drop branch if exists {branch}")
    return found
