"""Records what a run asked and found, and reads what models/ops/ops_export_weeks.sql decides by it."""

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Annotated, Any

from pyhive import hive
from pyiceberg.catalog import Catalog
from pyiceberg.types import (
    BooleanType,
    DoubleType,
    IntegerType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestamptzType,
)

from python_common.catalog.small_table import SmallTable
from python_common.errors import Issue, Kind, UserError
from python_common.spark import spark_sql
from python_common.weeks import IsoWeek

# The views that decide; each run replaces them, because they name the tables of the facts as these are.
MODELS = ("ops_topic_weeks", "ops_export_weeks")
PARTITIONS = ListType(
    element_id=101,
    element=StructType(
        NestedField(102, "kafka_partition", IntegerType()),
        NestedField(103, "newest_at", TimestamptzType()),
        NestedField(104, "is_unread", BooleanType()),
    ),
)
WEEKS = ListType(
    element_id=111,
    element=StructType(
        NestedField(112, "starts_at", TimestamptzType()),
        NestedField(113, "records", LongType()),
        NestedField(114, "dead_letters", LongType()),
    ),
)


@dataclass(frozen=True)
class TopicRead:
    """What broker and bronze table of a topic had when they were asked."""

    topic: Annotated[str, "name of the Kafka topic"]
    bronze_table: Annotated[str | None, "<schema>.<table> that the topic lands in"]
    snapshot_id: Annotated[int | None, "of the bronze table, as of which it was read", LongType()]
    asked_at: Annotated[datetime, "when they were asked"]
    error: Annotated[str | None, "why the table could not be read"]
    broker_error: Annotated[str | None, "why the broker's end offsets are unknown"]
    producer: Annotated[str | None, "what writes the topic"]
    silence_seconds: Annotated[int, "how long after a week's end the topic may have no record", LongType()]
    max_dead_letters: Annotated[int, "how many dead letters of a week are the usual few", LongType()]
    max_dead_letter_share: Annotated[float, "which share of a week's records may be dead letters", DoubleType()]
    partitions: Annotated[list[dict[str, Any]], "of each partition the newest time, and if it is unread", PARTITIONS]
    weeks: Annotated[list[dict[str, Any]], "of each week the records and the dead letters among them", WEEKS]

    def dead_letters(self, week: IsoWeek) -> int:
        """Return how many records that are stamped in a week could not be decoded."""
        return sum(counted["dead_letters"] for counted in self.weeks if counted["starts_at"] == week.start)

    def with_weeks(self, weeks: Iterable[IsoWeek]) -> "TopicRead":
        """Return the read with the weeks that it has no record of, for a decision about these."""
        counted = {week["starts_at"] for week in self.weeks}
        missing = [week.start for week in weeks if week.start not in counted]
        none = [{"starts_at": start, "records": 0, "dead_letters": 0} for start in missing]
        return replace(self, weeks=[*self.weeks, *none])


@dataclass(frozen=True)
class FoundIssue:
    """An issue that a check has found, until the same check asks again."""

    issue_id: Annotated[str, "when it was found, and a number"]
    origin: Annotated[str, "topic, dataset or unique id of a dbt node that is not to be trusted"]
    week_label: Annotated[str | None, "the week that it counts for; null for every week"]
    message: Annotated[str, "what is wrong, without data"]
    kind: Annotated[Kind | None, "the check that found it", StringType()] = None


@dataclass(frozen=True)
class LoggedDecision:
    """What was decided of a week of a dataset in an export root, where it was not the same as before."""

    decision_id: Annotated[str, "when it was decided, and of what: <time>/<export root>/<dataset>/<week>"]
    address: Annotated[str, "<export root>/<dataset>/<week>"]
    decided_at: Annotated[datetime, "when it was decided"]
    outcome: Annotated[str, "the version that readers have, or why the week is withheld, without data"]


@dataclass(frozen=True)
class Decision:
    """Why a week of a dataset is withheld, if for anything, and what its readers should know."""

    reasons: tuple[str, ...]
    warnings: tuple[str, ...]


Decisions = dict[tuple[str, IsoWeek], Decision]
READS, ISSUES = SmallTable("ops.topic_reads", TopicRead), SmallTable("ops.issues", FoundIssue)
LOG = SmallTable("ops.export_decisions", LoggedDecision)


def record_reads(catalog: Catalog, reads: Mapping[str, TopicRead], weeks: Collection[IsoWeek]) -> None:
    """Record what was read of topics, in the place of earlier reads, for a decision about some weeks."""
    new = {topic: read.with_weeks(weeks) for topic, read in reads.items()}
    READS.change(catalog, lambda before: {**before, **new})


def record_issues(
    catalog: Catalog,
    found: Collection[Issue],
    checked: Mapping[Kind, Collection[str] | None],
    weeks: Collection[IsoWeek],
) -> set[str]:
    """Record issues, and return what is wrong in every week.

    They take the place of those that the same checks have found before: `checked` has by kind the objects that were
    asked about, None for all. An issue of one week stays unless that is among `weeks`.
    """
    at, labels = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S.%fZ}", {*map(str, weeks)}
    new = [
        FoundIssue(f"{at}/{number:04}", issue.object, issue.week, issue.message, issue.kind)
        for number, issue in enumerate(dict.fromkeys(found))
    ]

    def is_over(row: FoundIssue) -> bool:
        objects = checked.get(row.kind, ()) if row.kind else None
        return (objects is None or row.origin in objects) and row.week_label in {None, *labels}

    def recorded(rows: dict[str, FoundIssue]) -> dict[str, FoundIssue]:
        return {key: row for key, row in rows.items() if not is_over(row)} | {row.issue_id: row for row in new}

    rows = ISSUES.change(catalog, recorded).values()
    return {row.message for row in rows if row.week_label is None}


def log_outcomes(catalog: Catalog, outcomes: Mapping[str, str]) -> None:
    """Add to the log what has become of weeks, by address, where it is not what the log has last."""
    now = datetime.now(UTC)

    def logged(rows: dict[str, LoggedDecision]) -> dict[str, LoggedDecision]:
        last = {row.address: row.outcome for row in rows.values()}
        new = [
            LoggedDecision(f"{now:%Y-%m-%dT%H:%M:%S.%fZ}/{address}", address, now, outcome)
            for address, outcome in outcomes.items()
            if last.get(address) != outcome
        ]
        return rows | {row.decision_id: row for row in new}

    LOG.change(catalog, logged)


def drop_issues(catalog: Catalog, dataset: str, week: str) -> None:
    """Drop what a check of the file of a week has refused: it is approved."""
    refused = (dataset, week)
    ISSUES.change(
        catalog, lambda rows: {key: row for key, row in rows.items() if (row.origin, row.week_label) != refused}
    )


def decisions(cursor: hive.Cursor, wanted: Collection[tuple[str, IsoWeek]]) -> Decisions:
    """Return what the view decides of datasets and weeks.

    Raises:
        UserError: it has no row of one: nothing is known of it, so it must not be published.
    """
    weeks = sorted({str(week) for _, week in wanted})
    labels = ", ".join(f"'{week}'" for week in weeks)
    rows = spark_sql.run(
        cursor,
        "select dataset_name, week_label, to_json(reasons), to_json(warnings) from ops.export_weeks"
        f" where week_label in ({labels})",
        f"read what is decided of {', '.join(weeks)}",
    )
    decided = {
        (dataset, IsoWeek.parse(week)): Decision(tuple(json.loads(reasons)), tuple(json.loads(warnings)))
        for dataset, week, reasons, warnings in rows
    }
    if missing := [f"{dataset} {week}" for dataset, week in wanted if (dataset, week) not in decided]:
        raise UserError(
            f"ops.export_weeks has no row of {', '.join(missing)}", "Look into models/ops/ops_export_weeks.sql"
        )
    return {key: decided[key] for key in wanted}


def verdicts(cursor: hive.Cursor, week: IsoWeek) -> list[tuple[Any, ...]]:
    """Return what the view has of a week: dataset, week, verdict, published version, why, and export root.

    Raises:
        UserError: the view cannot be read, as before the first run.
    """
    why = "array_join(concat(reasons, array_compact(array(skipped, held)), warnings), '; ')"
    try:
        return spark_sql.run(
            cursor,
            f"select dataset_name, week_label, verdict, published_version, {why}, export_root"
            f" from ops.export_weeks where week_label = '{week}' order by dataset_name, export_root",
            f"read what is decided of {week}",
        )
    except UserError as error:
        raise UserError(error.message, "`lakehouse weekly` makes ops.export_weeks") from None
