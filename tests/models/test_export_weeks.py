"""Which weeks the views of models/ops let be published, against the rules in plain Python."""

import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import product

import pytest
from pyhive import hive

from python_common.catalog.catalog import load_catalog
from python_common.catalog.small_table import SmallTable
from python_common.config.settings import Settings
from python_common.errors import Issue
from python_common.weeks import IsoWeek
from python_dbt.manifest import DbtManifest
from python_export.datasets import declared
from python_export.datasets.declared import Topic
from python_export.readiness import facts
from python_export.readiness.completeness import EPOCH, TopicProgress
from python_export.readiness.issues import withholds
from python_ingest.declare.topics import DeadLetterLimit

WEEK = IsoWeek.last_complete(datetime.now(UTC))
END = WEEK.end
INSTANT, GRACE = timedelta(seconds=1), timedelta(hours=24)
# Of partition 0 and 1 of a table: no row, none that could be decoded, one from before the end, one from after it.
NEWEST = (None, EPOCH, END - INSTANT, END)
MONDAY = (WEEK.start - EPOCH) // timedelta(microseconds=1)

Query = Callable[[str], list[dict]]


@pytest.fixture
def query(
    stack: Settings, cursor: hive.Cursor, compiled_project: DbtManifest, monkeypatch: pytest.MonkeyPatch
) -> Query:
    """Return a function that gives the rows of a view of models/ops, which reads the facts of this test alone."""
    tables = {}
    for name in ("READS", "ISSUES"):
        table = getattr(facts, name)
        tables[table.identifier] = f"ops_tests.{name.lower()}_{uuid.uuid4().hex[:8]}"
        monkeypatch.setattr(facts, name, SmallTable(tables[table.identifier], table.row))
    facts.record_issues(load_catalog(stack), [])

    def run(model: str) -> list[dict]:
        sql = compiled_project.named(model).compiled_code
        weeks = compiled_project.named("ops_topic_weeks").compiled_code
        sql = sql.replace("from ops.topic_weeks", f"from ({weeks})")
        for recorded, own in tables.items():
            sql = sql.replace(f"from {recorded}", f"from {own}")
        cursor.execute(sql)
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]

    return run


def states() -> Iterator[TopicProgress]:
    """Yield what a table of two partitions may hold, and what the broker, which knows a third one, may have more."""
    moments = (END - INSTANT, END, END + GRACE - INSTANT, END + GRACE)
    unread = (frozenset(partitions) for partitions in ((), (0,), (1,), (2,), (0, 1)))
    for (*newest, asked_at), lacking in product(product(NEWEST, NEWEST, moments), [*unread]):
        watermarks = {partition: moment for partition, moment in enumerate(newest) if moment}
        yield TopicProgress(watermarks, {MONDAY: (1, 0)}, asked_at, lacking)


def test_topic_is_complete_by_record_producer_or_silence(stack: Settings, query: Query) -> None:
    """Every combination of two partitions, end offsets, times of asking, silences and another topic."""
    heard = TopicProgress({0: END}, {}, END + GRACE)
    others = {
        "heard": heard,
        "heard, unread elsewhere": replace(heard, watermarks={0: END, 1: EPOCH}, unread=frozenset({1})),
        "silent": replace(heard, watermarks={0: EPOCH}),
        "unreadable": Issue("Spark failed"),
        "of another producer": heard,
        "of a topic without one": heard,
    }
    reads: dict[Topic, TopicProgress | Issue] = {}
    expected = {}
    for number, (state, (kind, other), silence) in enumerate(
        product(states(), others.items(), (None, GRACE / 2, GRACE * 2))
    ):
        producers = {"of another producer": f"{number} till", "of a topic without one": None}
        reads[Topic(f"{number}", "bronze.one", producer=f"{number} shop", silence=silence)] = state
        reads[Topic(f"{number} other", "bronze.two", producer=producers.get(kind, f"{number} shop"))] = other
        is_past = [state.watermarks.get(partition, EPOCH) >= END for partition in (0, 1, 2)]
        is_read = all(past or partition not in state.unread for partition, past in enumerate(is_past))
        is_read = is_read and state.asked_at >= END
        is_silent = state.asked_at - END >= (GRACE if silence is None else silence)
        by_record, by_producer = is_read and any(is_past), is_read and kind == "heard"
        expected[f"{number}"] = (
            "record" if by_record else "producer" if by_producer else "silence" if is_read and is_silent else None
        )
    facts.record_reads(load_catalog(stack), reads)
    rows = {row["topic"]: row for row in query("ops_topic_weeks")}
    assert {topic: rows[topic]["complete_by"] for topic in expected} == expected
    assert {row["week_label"] for row in rows.values()} == {str(WEEK)}
    assert {row["error"] for row in rows.values()} == {None, "Spark failed"}
    assert {*expected.values()} == {"record", "producer", "silence", None}


def test_without_the_broker_each_partition_has_to_be_past_the_end(stack: Settings, query: Query) -> None:
    reads: dict[Topic, TopicProgress | Issue] = {}
    expected = {}
    for number, newest in enumerate(product(NEWEST, NEWEST)):
        watermarks = {partition: moment for partition, moment in enumerate(newest) if moment}
        reads[Topic(f"{number}", "bronze.one")] = TopicProgress(watermarks, {}, END + GRACE, error="the broker is away")
        expected[f"{number}"] = "record" if watermarks and min(watermarks.values()) >= END else None
    facts.record_reads(load_catalog(stack), reads)
    rows = query("ops_topic_weeks")
    assert {row["topic"]: row["complete_by"] for row in rows} == expected
    assert all("the broker is away" in row["watermark"] for row in rows)


@pytest.mark.parametrize(("share", "count", "is_too_many"), [(0.05, 20, True), (0.29, 29, True), (0.3, 0, False)])
def test_dead_letters_of_a_week_are_limited(
    stack: Settings, query: Query, share: float, count: int, is_too_many: bool
) -> None:
    before = MONDAY - 7 * 86_400 * 1_000_000
    state = TopicProgress({0: END}, {MONDAY: (100, 30), before: (1, 0)}, END)
    topic = Topic("one", "bronze.one", DeadLetterLimit(share=share, count=count))
    facts.record_reads(load_catalog(stack), {topic: state})
    rows = {row["week_label"]: row for row in query("ops_topic_weeks")}
    assert {label: row["has_too_many_dead_letters"] for label, row in rows.items()} == {
        str(WEEK): is_too_many,
        str(WEEK.minus(1)): False,
    }
    assert (rows[str(WEEK)]["stamped_records"], rows[str(WEEK)]["stamped_dead_letters"]) == (100, 30)


def test_issue_withholds_what_comes_from_its_origin(
    stack: Settings, query: Query, compiled_project: DbtManifest
) -> None:
    """An issue at each node and topic of the project and at each dataset, in a week of its own."""
    datasets = declared.of_manifest(compiled_project).values()
    topics = {topic for dataset in datasets for topic in dataset.topics}
    origins = sorted(
        {*compiled_project.nodes, *compiled_project.sources, *(topic.name for topic in topics)}
        | {dataset.name for dataset in datasets}
    )
    weeks = {origin: WEEK.minus(number) for number, origin in enumerate(origins)}
    first = (min(week.start for week in weeks.values()) - EPOCH) // timedelta(microseconds=1)
    complete = TopicProgress({0: END}, {first: (1, 0)}, END)
    catalog = load_catalog(stack)
    facts.record_reads(catalog, dict.fromkeys(topics, complete))
    found = [(week, Issue("wrong", object=origin)) for origin, week in weeks.items()]
    facts.record_issues(catalog, [*found, *((None, Issue("few", object="none", of_suppressed=True)),)])
    rows = query("ops_export_weeks")
    withheld = {(row["dataset_name"], row["week_label"]) for row in rows if row["verdict"] == "withhold"}
    assert withheld == {
        (dataset.name, str(week))
        for week, issue in found
        for dataset in datasets
        if withholds(issue, dataset) or issue.object == dataset.name
    }
    assert len(rows) == len(datasets) * len(origins)


def test_silence_and_small_groups_withhold_with_a_reason(
    stack: Settings, query: Query, compiled_project: DbtManifest
) -> None:
    datasets = declared.of_manifest(compiled_project)
    small = next(dataset for dataset in datasets.values() if dataset.suppressed)
    silent = TopicProgress({0: END - INSTANT}, {MONDAY: (1, 0)}, END + GRACE)
    catalog = load_catalog(stack)
    topics = {topic for dataset in datasets.values() for topic in dataset.topics}
    facts.record_reads(catalog, {replace(topic, silence=None): silent for topic in topics})
    facts.record_issues(catalog, [(None, Issue("few", object=small.topics[0].name, of_suppressed=True))])
    rows = {row["dataset_name"]: row for row in query("ops_export_weeks")}
    assert {name for name, row in rows.items() if row["verdict"] == "withhold"} == {
        name for name, dataset in datasets.items() if dataset.suppressed
    }
    expected = [
        f"behind: {topic.name} at {END - INSTANT:%Y-%m-%d %H:%M:%S} UTC"
        ", and silence completes no dataset with suppressed groups"
        for topic in small.topics
    ]
    assert rows[small.name]["reasons"] == str(sorted([*expected, "few"])).replace("'", '"').replace('", "', '","')
