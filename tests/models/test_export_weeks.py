"""Which weeks the views of models/ops let be published, against the rules in plain Python."""

import json
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import product
from typing import Any

import pytest
from pyhive import hive

from python_common.catalog.catalog import load_catalog
from python_common.catalog.small_table import SmallTable
from python_common.config.settings import Settings
from python_common.errors import Issue
from python_common.weeks import IsoWeek
from python_dbt.manifest import DbtManifest
from python_export.datasets import declared
from python_export.datasets.declared import Dataset
from python_export.notify import outbox
from python_export.notify.outbox import Entry
from python_export.publishing import hold, late
from python_export.publishing.hold import Hold
from python_export.publishing.late import ExportedWeek
from python_export.readiness import decision
from python_export.readiness.completeness import EPOCH
from python_export.readiness.decision import TopicRead

WEEK = IsoWeek.last_complete(datetime.now(UTC))
END = WEEK.end
INSTANT, GRACE = timedelta(seconds=1), timedelta(hours=24)
# Of partition 0 and 1 of a table: no row, none that could be decoded, one from before the end, one from after it.
NEWEST = (None, EPOCH, END - INSTANT, END)

Query = Callable[[str], list[dict]]


@pytest.fixture
def query(
    stack: Settings, cursor: hive.Cursor, compiled_project: DbtManifest, monkeypatch: pytest.MonkeyPatch
) -> Query:
    """Return a function that gives the rows of a view of models/ops, which reads the facts of this test alone."""
    tables = {}
    recorded = [(decision, "READS"), (decision, "ISSUES"), (outbox, "TABLE"), (late, "TABLE"), (hold, "TABLE")]
    for module, name in recorded:
        table = getattr(module, name)
        own = SmallTable(f"ops_tests.facts_{uuid.uuid4().hex[:8]}", table.row)
        tables[table.identifier] = own.identifier
        monkeypatch.setattr(module, name, own)
        own.change(load_catalog(stack), lambda rows: rows)

    def run(model: str) -> list[dict]:
        sql = compiled_project.named(model).compiled_code
        weeks = compiled_project.named("ops_topic_weeks").compiled_code
        sql = sql.replace("from ops.topic_weeks", f"from ({weeks})")
        for shared, own in tables.items():
            sql = sql.replace(f"from {shared}", f"from {own}")
        cursor.execute(sql)
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]

    return run


def read(
    topic: str,
    newest: Mapping[int, datetime],
    asked_at: datetime = END,
    unread: frozenset[int] = frozenset(),
    **more: Any,
) -> TopicRead:
    """Return what was read of a topic, by default with one record of the week, and a silence of a day."""
    partitions = [
        {"kafka_partition": number, "newest_at": newest.get(number), "is_unread": number in unread}
        for number in sorted(newest.keys() | unread)
    ]
    weeks = [{"starts_at": WEEK.start, "records": 1, "dead_letters": 0}]
    usual = TopicRead(
        topic, None, None, asked_at, None, None, None, int(GRACE.total_seconds()), 0, 0.0, partitions, weeks
    )
    return replace(usual, **more)


@pytest.fixture
def datasets(compiled_project: DbtManifest) -> dict[str, Dataset]:
    return declared.of_manifest(compiled_project)


@pytest.fixture
def topics(datasets: dict[str, Dataset]) -> set[str]:
    return {topic.topic for dataset in datasets.values() for topic in dataset.topics}


def record(settings: Settings, *reads: TopicRead) -> None:
    decision.record_reads(load_catalog(settings), {one.topic: one for one in reads}, [])


def states() -> Iterator[TopicRead]:
    """Yield what a table of two partitions may hold, and what the broker, which knows a third one, may have more."""
    moments = (END - INSTANT, END, END + GRACE - INSTANT, END + GRACE)
    unread = (frozenset(partitions) for partitions in ((), (0,), (1,), (2,), (0, 1)))
    for (*newest, asked_at), lacking in product(product(NEWEST, NEWEST, moments), [*unread]):
        watermarks = {partition: moment for partition, moment in enumerate(newest) if moment}
        yield read("", watermarks, asked_at, lacking)


def test_topic_is_complete_by_record_producer_or_silence(stack: Settings, query: Query) -> None:
    """Every combination of two partitions, end offsets, times of asking, silences and another topic."""
    heard = read("", {0: END}, END + GRACE)
    others = {
        "heard": heard,
        "heard, unread elsewhere": read("", {0: END, 1: EPOCH}, END + GRACE, frozenset({1})),
        "silent": read("", {0: EPOCH}, END + GRACE),
        "unreadable": replace(heard, partitions=[], error="Spark failed"),
        "of another producer": heard,
        "of a topic without one": heard,
    }
    reads, expected = [], {}
    for number, (state, (kind, other), silence) in enumerate(
        product(states(), others.items(), (GRACE, GRACE / 2, GRACE * 2))
    ):
        producers = {"of another producer": f"{number} till", "of a topic without one": None}
        seconds = int(silence.total_seconds())
        reads += [
            replace(state, topic=f"{number}", producer=f"{number} shop", silence_seconds=seconds),
            replace(other, topic=f"{number} other", producer=producers.get(kind, f"{number} shop")),
        ]
        newest = {one["kafka_partition"]: one["newest_at"] or EPOCH for one in state.partitions}
        unread = {one["kafka_partition"] for one in state.partitions if one["is_unread"]}
        is_past = [newest.get(partition, EPOCH) >= END for partition in (0, 1, 2)]
        is_read = all(past or partition not in unread for partition, past in enumerate(is_past))
        is_read = is_read and state.asked_at >= END
        is_silent = state.asked_at - END >= silence
        by_record, by_producer = is_read and any(is_past), is_read and kind == "heard"
        expected[f"{number}"] = (
            "record" if by_record else "producer" if by_producer else "silence" if is_read and is_silent else None
        )
    record(stack, *reads)
    rows = {row["topic"]: row for row in query("ops_topic_weeks")}
    assert {topic: rows[topic]["complete_by"] for topic in expected} == expected
    assert {row["week_label"] for row in rows.values()} == {str(WEEK)}
    assert {row["error"] for row in rows.values()} == {None, "Spark failed"}
    assert {*expected.values()} == {"record", "producer", "silence", None}


def test_without_the_broker_a_partition_before_the_end_suffices(stack: Settings, query: Query) -> None:
    reads, expected = [], {}
    for number, newest in enumerate(product(NEWEST, NEWEST)):
        watermarks = {partition: moment for partition, moment in enumerate(newest) if moment}
        reads.append(read(f"{number}", watermarks, END + GRACE, broker_error="the broker is away"))
        expected[f"{number}"] = "record" if watermarks and min(watermarks.values()) >= END else None
    record(stack, *reads)
    rows = query("ops_topic_weeks")
    assert {row["topic"]: row["complete_by"] for row in rows} == expected
    assert all("the broker is away" in row["watermark"] for row in rows)


def test_watermark_says_how_far_a_topic_is(stack: Settings, query: Query) -> None:
    decoded, letters = ([{"starts_at": WEEK.start, "records": count, "dead_letters": 0}] for count in (1, 0))
    unread = read("unread", {0: END - INSTANT, 1: END}, unread=frozenset({0, 1, 2}), weeks=decoded)
    record(stack, read("empty", {}, weeks=letters), read("letters", {0: EPOCH}, weeks=decoded), unread)
    assert {row["topic"]: row["watermark"] for row in query("ops_topic_weeks")} == {
        "empty": "empty has landed nothing",
        "letters": "letters has landed nothing that could be decoded",
        "unread": f"unread at {END:%Y-%m-%d %H:%M:%S} UTC (partitions not read to their ends: 0, 2)",
    }


def test_dead_letters_of_a_week_are_limited(stack: Settings, query: Query) -> None:
    weeks = [
        {"starts_at": WEEK.start, "records": 100, "dead_letters": 30},
        {"starts_at": WEEK.minus(1).start, "records": 1, "dead_letters": 0},
    ]
    limits = {"far above": (0.05, 20, True), "just above": (0.29, 29, True), "at the share": (0.3, 0, False)}
    record(
        stack,
        *(
            read(topic, {0: END}, weeks=weeks, max_dead_letters=count, max_dead_letter_share=share)
            for topic, (share, count, _) in limits.items()
        ),
    )
    columns = ("has_too_many_dead_letters", "stamped_records", "stamped_dead_letters")
    rows = {(row["topic"], row["week_label"]): tuple(row[name] for name in columns) for row in query("ops_topic_weeks")}
    assert rows == {
        **{(topic, str(WEEK)): (is_too_many, 100, 30) for topic, (_, _, is_too_many) in limits.items()},
        **{(topic, str(WEEK.minus(1))): (False, 1, 0) for topic in limits},
    }


def test_issue_withholds_what_comes_from_its_origin(
    stack: Settings, query: Query, compiled_project: DbtManifest, datasets: dict[str, Dataset], topics: set[str]
) -> None:
    """An issue at each node and topic of the project and at each dataset, in a week of its own."""
    origins = sorted({*compiled_project.nodes, *compiled_project.sources, *topics, *datasets})
    weeks = {origin: WEEK.minus(number) for number, origin in enumerate(origins)}
    catalog = load_catalog(stack)
    decision.record_reads(catalog, {topic: read(topic, {0: END}) for topic in topics}, weeks.values())
    decision.record_issues(
        catalog, [Issue("wrong", object=origin, week=str(week)) for origin, week in weeks.items()], {}, ()
    )
    rows = query("ops_export_weeks")
    withheld = {(row["dataset_name"], row["week_label"]) for row in rows if row["verdict"] == "withhold"}
    assert withheld == {
        (dataset.name, str(week))
        for origin, week in weeks.items()
        for dataset in datasets.values()
        if origin in dataset.lineage or origin == dataset.name
    }
    assert len(rows) == len(datasets) * len(origins)


def test_unread_topic_or_issue_of_all_weeks_withholds(
    stack: Settings, query: Query, datasets: dict[str, Dataset], topics: set[str]
) -> None:
    missing = datasets["order_lines"].topics[0].topic
    record(stack, *(read(topic, {0: END}) for topic in topics - {missing}))
    rows = {row["dataset_name"]: row for row in query("ops_export_weeks")}
    reasons = json.dumps([f"no run has read the topic {missing}"])
    assert {name for name, row in rows.items() if row["reasons"] == reasons} == {
        name for name, dataset in datasets.items() if missing in dataset.lineage
    }
    catalog = load_catalog(stack)
    decision.record_reads(catalog, {topic: read(topic, {0: END}) for topic in topics}, [WEEK.minus(1)])
    decision.record_issues(catalog, [Issue("wrong", object="order_lines")], {}, ())
    withheld = [row for row in query("ops_export_weeks") if row["verdict"] == "withhold"]
    assert {row["dataset_name"] for row in withheld} == {"order_lines"}
    assert {row["week_label"] for row in withheld} == {str(WEEK), str(WEEK.minus(1))}


def test_silence_withholds_small_groups_and_warns_the_others(
    stack: Settings, query: Query, datasets: dict[str, Dataset], topics: set[str]
) -> None:
    record(stack, *(read(topic, {0: END - INSTANT}, END + GRACE) for topic in topics))
    rows = query("ops_export_weeks")
    at = f"at {END - INSTANT:%Y-%m-%d %H:%M:%S} UTC"
    for row in rows:
        dataset = datasets[row["dataset_name"]]
        silent = sorted(topic.topic for topic in dataset.topics)
        withheld = [
            f"behind: {topic} {at}, and silence completes no dataset with suppressed groups" for topic in silent
        ]
        assert json.loads(row["reasons"]) == (withheld if dataset.suppressed else [])
        assert json.loads(row["warnings"]) == [f"{WEEK} is complete by silence: {topic} {at}" for topic in silent]
    assert {bool(datasets[row["dataset_name"]].suppressed) for row in rows} == {True, False}


def version(week: IsoWeek, number: int, kind: str = outbox.VERSION, root: str = "/srv/exports/") -> Entry:
    """Return the row of a version of order_lines, or of its withdrawal."""
    key = f"{kind}/{root}/{week}/{number}"
    return Entry(key, kind, str(week), "order_lines", number, None, None, END, outbox.DELIVERED, outbox.DELIVERED, root)


def test_verdict_names_what_has_become_of_a_week(stack: Settings, query: Query, topics: set[str]) -> None:
    """A week per case: versions, withdrawn here or in another root, a skip, a hold, an approval, an issue."""
    catalog = load_catalog(stack)
    weeks = [WEEK.minus(number) for number in range(8)]
    versions = [
        *(version(weeks[1], number) for number in (9, 10)),
        *(version(weeks[2], 1), version(weeks[2], 1, outbox.WITHDRAWN)),
        *(version(weeks[3], 1), version(weeks[3], 1, outbox.WITHDRAWN, "/srv/trial/")),
        *(version(weeks[4], number) for number in (1, 2)),
        version(weeks[4], 2, outbox.WITHDRAWN),
        version(weeks[7], 1),
    ]
    address = "s3://shop/exports/order_lines/{}".format
    skipped = [
        ExportedWeek(address(weeks[5]), None, END, "the till was off"),
        ExportedWeek(address(weeks[1]), "{}", END),
        ExportedWeek(f"/srv/exports/order_lines/{weeks[6]}", None, END, "a trial"),
    ]
    holds = [
        Hold(address(weeks[6]), "0123456789abcdef", "rows 9"),
        Hold(address(weeks[7]), "f" * 64, "rows 8", "right"),
    ]
    decision.record_reads(catalog, {topic: read(topic, {0: END}) for topic in topics}, weeks)
    decision.record_issues(catalog, [Issue("wrong", object="order_lines", week=str(weeks[7]))], {}, ())
    outbox.TABLE.change(catalog, lambda _: {row.idempotency_key: row for row in versions})
    late.TABLE.change(catalog, lambda _: {row.address: row for row in skipped})
    hold.TABLE.change(catalog, lambda _: {row.address: row for row in holds})
    columns = ("week_label", "export_root", "verdict", "published_version", "skipped", "held")
    rows = [row for row in query("ops_export_weeks") if row["dataset_name"] == "order_lines"]
    directory, bucket = "/srv/exports", "s3://shop/exports"
    assert {tuple(row[column] for column in columns) for row in rows} == {
        (str(weeks[0]), None, "publish", None, None, None),
        (str(weeks[1]), directory, "published", 10, None, None),
        (str(weeks[2]), None, "publish", None, None, None),
        (str(weeks[3]), directory, "published", 1, None, None),
        (str(weeks[4]), directory, "published", 1, None, None),
        (str(weeks[5]), bucket, "skipped", None, "the till was off", None),
        (str(weeks[6]), directory, "skipped", None, "a trial", None),
        (str(weeks[6]), bucket, "held", None, None, "0123456789ab: rows 9"),
        (str(weeks[7]), directory, "withhold", 1, None, None),
    }
    assert len({row["export_week_id"] for row in rows}) == len(rows)
