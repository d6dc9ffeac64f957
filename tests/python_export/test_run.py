"""The complete run on a real Thrift server and real dbt: from a bronze table with hostile values to a published CSV."""

import csv
import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import typer
import yaml
from confluent_kafka.admin import AdminClient, NewTopic
from pyiceberg.exceptions import NoSuchTableError
from typer.testing import CliRunner

from python_common.catalog.catalog import load_catalog
from python_common.config import connections
from python_common.config.environment import PROJECT_ROOT, environment
from python_common.config.settings import Settings
from python_common.errors import DeadlineError, UserError
from python_common.spark import spark_sql, thrift
from python_common.weeks import IsoWeek
from python_dbt.project import Project
from python_dbt.run import event_of
from python_export.cli import versions
from python_export.cli.outcome import WITHHELD, end_run
from python_export.cli.run import app
from python_export.csv import write
from python_export.datasets import contract
from python_export.notify.exported import Exported
from python_export.publishing import hold, late, publish
from python_export.publishing.publish import Published
from python_export.publishing.target import open_target
from python_export.publishing.versions import rewrite, source_snapshot, tag_name
from python_export.run import Exporter
from python_ingest.kafka.admin import Broker
from tests.support import forked
from tests.support.hostile_rows import (
    COLUMNS,
    GUARDED,
    LAST_INSTANT,
    MONDAY,
    SCHEMA,
    TYPES,
    WITH_NUL,
    arrow_table,
    draft,
    hostile_rows,
    published_rows,
)
from tests.support.publishing import unlock
from tests.support.versions import publish_file

WEEK = IsoWeek(2020, 53)
NEXT_WEEK = IsoWeek(2021, 1)
EMPTY_WEEK = IsoWeek(2020, 52)
AFTER = IsoWeek(2021, 2).start
SCHEMA_NAME = "export_test"

DBT_PROJECT = """
name: export_test
version: "1.0"
profile: retail_lakehouse
vars: {week: ""}
flags: {send_anonymous_usage_stats: false, indirect_selection: buildable}
on-run-end: ["{{ tag_tested(results) }}"]
models:
  +file_format: iceberg
  +materialized: incremental
  +incremental_strategy: rebuild_if_changed
  +schema: export_test
  export_test:
    staging: {+schema: staging, +materialized: view}
    ops: {+schema: ops, +materialized: view}
"""
SELECTED = ", ".join(COLUMNS)
DECLARED = [{"name": name, "data_type": data_type} for name, data_type in zip(COLUMNS, TYPES, strict=True)]
STAGING = f"select {SELECTED} from {{{{ source('shop', 'events') }}}}"
MODEL = f"""
select {SELECTED}
from {{{{ ref('stg_shop__events') }}}}
where {{{{ in_exported_weeks(iso_week('event_at')) }}}}
"""
MODEL_YML = """
version: 2
models:
  - name: exp_weekly__events
    config:
      meta:
        export:
          key: [event_id]
          order_by: [event_at, event_id]
          formats: [parquet, xlsx]
          counts:
            - from: stg_shop__events
              at: event_at
              where: is_gift or event_at >= timestamp '2021-01-04'
              by: if(tiny is null, 'no tiny', null)
            - {from: stg_shop__events, at: event_at, where: not is_gift, by: "'no gift'"}
            - {from: stg_shop__events, at: event_at, seen_at: event_at + interval 7 days, where: not is_gift}
    columns:
      - name: event_id
        data_type: bigint
        description: Number of the event, "quoted".
        constraints: [{type: not_null}]
        data_tests: [unique, not_null]
      - name: amount
        data_type: decimal(12,2)
        config: {meta: {unit: currency units}}
      - name: quantity
        data_type: int
        config: {meta: {subjects: [shop.customer]}}
      - name: is_gift
        data_type: boolean
        config: {meta: {quasi: true}}
"""
SOURCES_YML = f"""
version: 2
sources:
  - name: shop
    schema: export_test
    tables:
      - {{name: events, config: {{meta: {{kafka: {{topic: shop.events}}}}}}, columns: {json.dumps(DECLARED)}}}
"""
# Notes represent products, quantities customers.
GROUPS = """
{{ config(
    incremental_strategy='replace_partitions', partitions='exported_weeks', partition_by='ordered_week',
    on_schema_change='append_new_columns'
) }}
with demand as (
    select
        {{ iso_week('event_at') }} as ordered_week, note, count(distinct quantity) as customers,
        sum(amount) as order_value
    from {{ ref('stg_shop__events') }}
    where {{ in_exported_weeks(iso_week('event_at')) }}
    group by 1, 2
),
marked as (
    select *, {{ is_suppressed('customers', total='ordered_week', key='note') }} as is_suppressed from demand
)
select
    ordered_week, note, is_suppressed,
    if(is_suppressed, null, customers) as customers, if(is_suppressed, null, order_value) as order_value
from marked
"""
GROUPS_YML = """
version: 2
models:
  - name: exp_weekly__groups
    config: {meta: {export: {key: [note], order_by: [note], suppressed: is_suppressed}}}
"""
BRONZE = pa.schema(
    [
        *SCHEMA,
        ("kafka_timestamp", pa.timestamp("us", "UTC")),
        ("ingested_at", pa.timestamp("us", "UTC")),
        ("kafka_partition", pa.int32()),
        ("decode_error", pa.string()),
        ("ingest_batch", pa.int64()),
        ("kafka_offset", pa.int64()),
    ]
)

Land = Callable[..., None]


def staging_yml(note: str = "none") -> str:
    """Return the declaration of the staging model, its column `note` of a PII class."""
    classes = {"note": note}
    columns = [column | {"config": {"meta": {"pii": classes.get(column["name"], "none")}}} for column in DECLARED]
    return json.dumps({"version": 2, "models": [{"name": "stg_shop__events", "columns": columns}]})


@pytest.fixture(scope="module")
def shop(stack: Settings, tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A dbt project of one export model, with the real profile and macros, on a bronze table that is still empty."""
    directory = tmp_path_factory.mktemp("shop")
    shutil.copytree(PROJECT_ROOT / "macros", directory / "macros")
    shutil.copytree(PROJECT_ROOT / "models" / "docs", directory / "models" / "docs")
    (directory / "models" / "ops").mkdir()
    for name in ("_ops__sources.yml", "ops_topic_weeks.sql", "ops_export_weeks.sql"):
        shutil.copy(PROJECT_ROOT / "models" / "ops" / name, directory / "models" / "ops")
    shutil.copy(PROJECT_ROOT / "profiles.yml", directory)
    for name, content in {
        "dbt_project.yml": DBT_PROJECT,
        "models/exports/exp_weekly__events.sql": MODEL,
        "models/exports/exp_weekly__events.yml": MODEL_YML,
        "models/sources.yml": SOURCES_YML,
        "models/staging/stg_shop__events.sql": STAGING,
        "models/staging/stg_shop__events.yml": staging_yml(),
    }.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text(content)
    catalog = load_catalog(stack)
    catalog.create_namespace(SCHEMA_NAME)
    catalog.create_table((SCHEMA_NAME, "events"), BRONZE)
    project = Project(directory, {**environment(), "DBT_TARGET_PATH": "target", "DBT_LOG_PATH": "logs"})
    parse(project)
    return project


@contextmanager
def changed(project: Project, name: str, content: str) -> Iterator[None]:
    """Change a file of the project inside the block."""
    file = project.directory / name
    before = file.read_text()
    file.write_text(content)
    try:
        yield
    finally:
        file.write_text(before)


def parse(project: Project) -> None:
    assert forked.dbt(["parse"], project.directory, project.env, 300).returncode == 0


@pytest.fixture(autouse=True)
def dbt_in_forks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the exporter start dbt as `run_dbt` does."""

    def run(command: list[str], directory: Path, env: dict[str, str], allowed: float) -> tuple[int, list[Any]]:
        finished = forked.dbt(command[1:], directory, env, allowed)
        return finished.returncode, [event for line in finished.stdout.splitlines() if (event := event_of(line))]

    monkeypatch.setattr("python_dbt.run._run", run)


@pytest.fixture
def land(stack: Settings, shop: Project) -> Land:
    """Replace the bronze table's rows; each counts as produced when it happened, or at `produced`."""

    def replace_rows(rows: list[tuple], produced: datetime | None = None, ingested: datetime = MONDAY) -> None:
        table = load_catalog(stack).load_table((SCHEMA_NAME, "events"))
        landed = [
            (*row, produced or row[1], max(ingested, row[1]), 0, None, 1, offset) for offset, row in enumerate(rows)
        ]
        table.overwrite(arrow_table(landed, BRONZE))

    return replace_rows


@pytest.fixture
def settings(stack: Settings, tmp_path: Path) -> Settings:
    """The stack's settings with a separate export root, in a directory with a difficult name."""
    return stack.changed(export_root=str(tmp_path / "ex'ports of\\ us"))


def exporting(settings: Settings, shop: Project, week: IsoWeek = WEEK, **options: bool) -> Exported:
    exported = Exported(week)
    Exporter(settings, load_catalog(settings), shop, exported).run([week], **options)
    return exported


def export(settings: Settings, shop: Project, week: IsoWeek = WEEK, **options: bool) -> Published:
    exported = exporting(settings, shop, week, **options)
    assert (exported.withheld, exported.warnings) == ([], [])
    [published] = exported.published
    return published


def previewed(settings: Settings, shop: Project) -> tuple[str, str]:
    """Return why the week is due and what withholds it, as a dry run shows it; it writes nothing."""
    files = public_files(settings)
    exporter = Exporter(settings, load_catalog(settings), shop, Exported(WEEK))
    [(dataset, week, why, reason)] = exporter.preview([WEEK])
    assert (dataset, week) == ("events", str(WEEK))
    assert public_files(settings) == files
    return why, reason


def withheld(settings: Settings, shop: Project, **options: bool) -> str:
    """Return why an export publishes nothing."""
    exported = exporting(settings, shop, **options)
    assert exported.published == []
    assert exported.has_issues
    [dataset] = exported.withheld
    assert str(dataset) == f"events 2020-W53 is withheld: {dataset.reason}"
    return dataset.reason


def file_of(published: Published) -> Path:
    return Path(published.file)


def in_next_week(number: int, note: str = "next week") -> tuple:
    """Return a row on the first instant of the next week, which also moves the watermark to the end of the week."""
    return (number, NEXT_WEEK.start, note, *[None] * 5)


def public_files(settings: Settings) -> dict[str, bytes]:
    files = (path for path in Path(settings.export_root).rglob("*") if path.is_file() and ".staging" not in path.parts)
    return {str(path.relative_to(Path(settings.export_root))): path.read_bytes() for path in files}


def test_hostile_values_are_published_and_written_again(
    settings: Settings,
    shop: Project,
    land: Land,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("python_export.run.SPREADSHEET_ROWS", len(hostile_rows()))
    land([*hostile_rows(), in_next_week(1000), (1001, MONDAY - timedelta(milliseconds=1), *[None] * 6)])

    published = export(settings, shop)

    expected = published_rows()
    assert file_of(published) == Path(settings.export_root) / "events" / "2020-W53" / "v1" / "events_2020-W53_v1.csv"
    rows = len(hostile_rows())
    assert f"events: of {rows} rows a spreadsheet shows {rows - 1}" in caplog.messages
    [parquet, xlsx] = (file_of(published).with_name(file.file) for file in published.manifest.files)
    assert not list((Path(settings.export_root) / ".staging").glob("*/"))

    manifest = json.loads((file_of(published).parent / "manifest.json").read_text())
    assert manifest["rows"] == len(expected)
    assert (manifest["window_start"], manifest["window_end"]) == ("2020-12-28T00:00:00Z", "2021-01-04T00:00:00Z")
    assert manifest["control_totals"]["amount"] == str(sum(row[3] for row in expected if row[3] is not None))
    assert manifest["formula_escaped"] == {"note": GUARDED}
    assert manifest["nul_removed"] == {"note": WITH_NUL}
    assert manifest["columns"][2] == {"name": "note", "type": "string", "nulls": 1}
    table = load_catalog(settings).load_table((SCHEMA_NAME, "exp_weekly__events"))
    assert manifest["source_snapshot_id"] == str(table.current_snapshot().snapshot_id)
    assert manifest["dbt_invocation_id"] == json.loads(shop.manifest_path.read_text())["metadata"]["invocation_id"]
    gifts = [row for row in expected if row[7]]
    no_gifts = sum(row[7] is False for row in expected)
    bare = sum(row[4] is None for row in gifts)
    reasons = {"no gift": no_gifts, "no tiny": bare, "other": len(gifts) - bare}
    assert manifest["quarantined_by_reason"] == {reason: count for reason, count in reasons.items() if count}
    assert (manifest["quarantined"], manifest["late"]) == (len(gifts) + no_gifts, no_gifts)
    assert manifest["dead_letters"] == 0
    assert manifest["warnings"] == [
        "1 cells of note are longer than the 32,767 characters of a spreadsheet's cell",
        f"NUL was taken out of {WITH_NUL} cells of note",
    ]
    assert_described(file_of(published).parent)

    files = {file.name: file.read_bytes() for file in (file_of(published), parquet, xlsx)}
    assert rewritten(settings, monkeypatch, tmp_path / "again") == files
    assert "other bytes" not in caplog.text
    unlock(file_of(published).parent)
    described = file_of(published).with_name("manifest.json")
    described.write_text(described.read_text().replace(published.manifest.files[0].sha256, "0" * 64))
    assert rewritten(settings, monkeypatch, tmp_path / "again") == files
    assert "events/2020-W53/v1: a library of another release writes other bytes of the same rows" in caplog.messages


def rewritten(settings: Settings, monkeypatch: pytest.MonkeyPatch, to: Path) -> dict[str, bytes]:
    monkeypatch.setattr("python_export.cli.versions.from_environment", lambda: settings)
    arguments = ["verify", "--week", str(WEEK), "--rewrite-to", str(to), "--json"]
    checks = json.loads(CliRunner().invoke(app, arguments).stdout)
    assert {"path": f"events/{WEEK}/v1 written again", "issues": [], "note": ""} in checks
    return {file.name: file.read_bytes() for file in to.iterdir()}


def assert_described(version: Path) -> None:
    """The dictionary has the columns of the file, and there is a contract."""
    with (version / "dictionary.csv").open(newline="", encoding="utf-8") as stream:
        fields = {row["name"]: row for row in csv.DictReader(stream)}
    assert list(fields) == COLUMNS
    assert (fields["event_id"]["description"], fields["event_id"]["nullable"]) == (
        'Number of the event, "quoted".',
        "false",
    )
    assert [fields["amount"][name] for name in ("type", "unit")] == ["decimal(12,2)", "currency units"]
    [schema] = yaml.safe_load((version.parents[1] / contract.FILE).read_text())["schema"]
    assert schema["name"] == "events"


@pytest.mark.slow
def test_fewer_persons_than_an_audience_requires_withhold_the_file(
    settings: Settings, shop: Project, land: Land
) -> None:
    """Quantities represent persons, `is_gift` what singles them out; the row of NULLs has no person."""
    land([*hostile_rows(), in_next_week(1000)])
    persons = {gift: {row[5] for row in hostile_rows() if row[7] is gift} for gift in (True, False)}
    fewest = min(map(len, persons.values()))

    def requiring(minimum: int) -> Project:
        return Project(shop.directory, {**shop.env, "LAKEHOUSE_EXPORT_MIN_PERSONS": str(minimum)})

    exported = exporting(settings, requiring(fewest + 1))
    assert [str(dataset) for dataset in exported.withheld] == [
        f"events {WEEK} is withheld: a combination of is_gift has {fewest} persons,"
        f" and the audience requires {fewest + 1}"
    ]
    assert exported.published == []
    assert public_files(settings) == {}

    published = export(settings, requiring(fewest))
    assert (published.manifest.quasi_identifiers, published.manifest.k_anonymity) == (["is_gift"], fewest)
    with (file_of(published).parent / "dictionary.csv").open(newline="", encoding="utf-8") as stream:
        assert {row["name"] for row in csv.DictReader(stream) if row["k_anonymity"] == str(fewest)} == {"is_gift"}


def test_same_data_is_one_version_and_late_data_the_next(settings: Settings, shop: Project, land: Land) -> None:
    rows = [*hostile_rows(), in_next_week(1000)]
    land(rows)
    assert previewed(settings, shop) == ("never published", "")
    first = export(settings, shop)
    files = public_files(settings)
    assert previewed(settings, shop) == ("v1 may differ", "")

    again = export(settings, shop)
    assert again.unchanged
    assert again.file == first.file
    assert public_files(settings) == files

    land([*rows, (2000, MONDAY, "late", *[None] * 5)])
    second = export(settings, shop)
    assert (second.manifest.version, second.manifest.supersedes) == (2, 1)
    assert [one.manifest.delivery for one in (first, second)] == ["2020-W53-1", "2020-W53-2"]
    assert second.manifest.rows == first.manifest.rows + 1
    assert second.manifest.difference == {"added": 1, "removed": 0, "changed": 0}
    assert file_of(first).read_bytes() == files["events/2020-W53/v1/events_2020-W53_v1.csv"]
    assert_rewritable_after_expiry(settings, first, second)

    publish.withdraw(open_target(settings), second.manifest.path, "a wrong price")
    same = exporting(settings, shop, with_build=False)
    assert (same.published, same.withheld, same.is_incomplete) == ([], [], False)
    [warning] = same.warnings
    assert warning.startswith("events/2020-W53/v2 had this content and was withdrawn")


def assert_rewritable_after_expiry(settings: Settings, *versions: Published) -> None:
    """The tags alone keep the snapshots: without its tag a version cannot be written again."""
    catalog, target = load_catalog(settings), open_target(settings)
    again = Path(settings.export_root).with_name("again")
    table = f"{SCHEMA_NAME}.exp_weekly__events"
    expire = f"call lake.system.expire_snapshots(table => '{table}', older_than => now(), retain_last => 1)"
    with thrift.connect(settings) as cursor:
        thrift.rows(cursor, expire)
        tagged = catalog.load_table(table)
        tags = {tag_name(target, version.manifest): int(version.manifest.source_snapshot_id) for version in versions}
        assert tags.items() <= {name: ref.snapshot_id for name, ref in tagged.refs().items()}.items()
        assert {snapshot.snapshot_id for snapshot in tagged.snapshots()} == {
            ref.snapshot_id for ref in tagged.refs().values()
        }
        for version in versions:
            rewrite(catalog, target, version.manifest, again)
            for name in (file_of(version).name, *(file.file for file in version.manifest.files)):
                assert (again / name).read_bytes() == file_of(version).with_name(name).read_bytes()
        first = versions[0].manifest
        with pytest.raises(UserError, match="its snapshot gives another file"):
            other = replace(first, source_snapshot_id=versions[1].manifest.source_snapshot_id)
            rewrite(catalog, target, other, again)
        thrift.rows(cursor, f"alter table {table} drop tag `{tag_name(target, first)}`")
        thrift.rows(cursor, expire)
    with pytest.raises(UserError, match="no longer has the snapshot that events/2020-W53/v1 was made from"):
        source_snapshot(catalog, first)


def test_a_complete_week_without_rows_is_a_header(settings: Settings, shop: Project, land: Land) -> None:
    land(hostile_rows())
    published = export(settings.changed(export_bom="true"), shop, EMPTY_WEEK)

    assert file_of(published).read_bytes() == b"\xef\xbb\xbf" + ",".join(COLUMNS).encode() + b"\n"
    assert published.manifest.rows == 0
    assert_described(file_of(published).parent)


def test_a_week_that_a_topic_has_not_passed_is_withheld(settings: Settings, shop: Project, land: Land) -> None:
    land(hostile_rows())
    missing = "(The topic 'shop.events' does not exist"
    assert withheld(settings, shop).startswith(f"behind: shop.events at 2021-01-03 23:59:59 UTC {missing}")
    land([])
    reason = withheld(settings, shop)
    assert reason.startswith(f"behind: shop.events has landed nothing {missing}")
    assert previewed(settings, shop) == ("never published", reason)
    assert public_files(settings) == {}


@pytest.mark.slow
def test_a_week_that_is_far_off_is_held_until_its_content_is_approved(
    settings: Settings, shop: Project, land: Land, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog, target = load_catalog(settings), open_target(settings)
    for back in range(1, 5):
        before = replace(draft(str(WEEK.minus(back))), control_totals={"amount": "10.00"})
        publish_file(target, "note\na\n", before)
    rows = [(1, MONDAY, "x", Decimal(10), *[None] * 4)]
    far = (10, MONDAY, "x", Decimal("20.01"), *[None] * 4)
    figures = "amount 30.01 is not within 3.33 to 30 (median 10 of 4 weeks, factor 3)"
    declared_hold = MODEL_YML.replace("        export:\n", "        export:\n          hold: {rows: 3, amount: 3}\n")
    with changed(shop, "models/exports/exp_weekly__events.yml", declared_hold):
        land([*rows, far, in_next_week(1000)])
        exported = exporting(settings, shop)
        assert (exported.published, exported.has_issues, exported.held_weeks) == ([], False, 1)
        [row] = hold.TABLE.rows(catalog).values()
        assert row.reason == figures
        [reason] = map(str, exported.withheld)
        assert reason.startswith("events 2020-W53 is withheld: its figures are far off the weeks before")
        assert reason.endswith(f"export approve events --week 2020-W53 --sha256 {row.sha256[:12]} --reason ...`")
        with pytest.raises(typer.Exit) as ended:
            end_run(exported, None)
        assert ended.value.exit_code == WITHHELD
        preview = ("never published", f"held by the last run, {row.sha256[:12]}: {figures}")
        assert previewed(settings, shop) == preview

        monkeypatch.setattr(versions, "from_environment", lambda: settings)
        named = ["events", "--week", "2020-W53", "--sha256", row.sha256]
        approved = CliRunner().invoke(app, ["approve", *named, "--reason", "a sale"])
        assert approved.exit_code == 0
        assert previewed(settings, shop) == ("never published", "")
        manifest = export(settings, shop, with_build=False).manifest
        assert (manifest.version, manifest.warnings) == (1, ["held for review, then approved: a sale"])
        assert hold.TABLE.rows(catalog) == {}


def test_a_clock_ahead_does_not_complete_a_week(settings: Settings, shop: Project, land: Land) -> None:
    land(hostile_rows(), produced=LAST_INSTANT + timedelta(hours=2), ingested=LAST_INSTANT)
    assert "shop.events has landed nothing" in withheld(settings, shop)


def test_a_failing_data_test_withholds_the_dataset(settings: Settings, shop: Project, land: Land) -> None:
    land([*hostile_rows(), hostile_rows()[0], in_next_week(1000)])
    for _ in range(2):
        assert withheld(settings, shop) == "test unique_exp_weekly__events_event_id failed"
    assert public_files(settings) == {}


@pytest.mark.slow
def test_a_spark_error_of_the_build_is_named_without_values(settings: Settings, shop: Project, land: Land) -> None:
    land([*hostile_rows(), in_next_week(1000)])
    raising = MODEL.replace("select event_id", "select cast(raise_error(note) as string) as reason, event_id")
    misspelt = MODEL.replace("in_exported_weeks", "in_exported_weaks")
    for sql, reason in ((raising, "USER_RAISED_EXCEPTION"), (misspelt, "'in_exported_weaks' is undefined")):
        with changed(shop, "models/exports/exp_weekly__events.sql", sql):
            reason_withheld = withheld(settings, shop)
        assert reason_withheld.startswith("exp_weekly__events could not be built (")
        assert reason in reason_withheld


@pytest.mark.slow
def test_a_dbt_that_cannot_begin_is_an_error(settings: Settings, shop: Project, land: Land) -> None:
    land([*hostile_rows(), in_next_week(1000)])
    for wrong, message in {
        DBT_PROJECT.replace("models:", "moddels:\n  - :"): "dbt could not run ops_topic_weeks and ops_export_weeks",
        DBT_PROJECT
        + "on-run-start: select raise_error('no')\n": "(?s)could not run ops_topic_weeks.*USER_RAISED_EXCEPTION",
    }.items():
        with changed(shop, "dbt_project.yml", wrong), pytest.raises(UserError, match=message):
            export(settings, shop)


@pytest.mark.slow
def test_without_a_build_the_table_must_hold_the_week(settings: Settings, shop: Project, land: Land) -> None:
    land([*hostile_rows(), in_next_week(1000)])
    export(settings, shop)
    assert export(settings, shop, with_build=False).unchanged
    # What dbt has compiled since is proven, and it is not what made the rows.
    model = shop.directory / "models" / "exports" / "exp_weekly__events.sql"
    for sql, is_refused in ((f"{MODEL}\n-- it's \\ corrected", True), (MODEL, False)):
        model.write_text(sql)
        assert forked.dbt(["compile"], shop.directory, shop.env, 300).returncode == 0
        exported = exporting(settings, shop, with_build=False)
        assert [
            "exp_weekly__events was not built for 2020-W53 from the SQL in" in dataset.reason
            for dataset in exported.withheld
        ] == [True] * is_refused
        assert len(exported.published) == (not is_refused)
    never_built = EMPTY_WEEK.minus(9)
    exported = exporting(settings, shop, never_built, with_build=False)
    assert [str(dataset) for dataset in exported.withheld] == [
        f"events {never_built} is withheld: exp_weekly__events was not built and tested for {never_built}"
    ]


def test_a_file_in_another_dialect_is_published(
    settings: Settings, shop: Project, land: Land, monkeypatch: pytest.MonkeyPatch
) -> None:
    land([*hostile_rows(), in_next_week(1000)])
    export(settings, shop)
    files = public_files(settings)
    monkeypatch.setattr(write, "OPTIONS", write.OPTIONS.replace("""escape '"'""", r"escape '\'"))
    exported = exporting(settings, shop, with_build=False)
    assert exported.published == []
    [dataset] = exported.withheld
    assert "differs from the table, so nothing is published" in dataset.reason
    assert public_files(settings) == files
    assert not list((Path(settings.export_root) / ".staging").glob("*/"))


@pytest.mark.slow
def test_a_statement_that_takes_too_long_is_ended(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thrift, "STATEMENT_SECONDS", 10.0)
    forever = "select count(*) from range(1000000000000) where sqrt(id) = -1"
    with (
        pytest.raises(DeadlineError, match="has not ended within 10 s"),
        thrift.connect(settings) as cursor,
    ):
        spark_sql.run(cursor, forever, "count for ever")
    # The server has ended it too, and works for others; on a busy machine not at once.
    monkeypatch.undo()
    with thrift.connect(settings) as cursor:
        assert thrift.rows(cursor, "select 1") == [(1,)]


def test_without_a_decision_nothing_is_published(settings: Settings, shop: Project, land: Land) -> None:
    land([*hostile_rows(), in_next_week(1000)])
    view = (PROJECT_ROOT / "models" / "ops" / "ops_export_weeks.sql").read_text()
    for sql, message in {
        "select no_column": "dbt could not run ops_topic_weeks and ops_export_weeks",
        f"{view} where false": "ops.export_weeks has no row of events 2020-W53",
    }.items():
        with changed(shop, "models/ops/ops_export_weeks.sql", sql), pytest.raises(UserError, match=message):
            export(settings, shop)
    assert public_files(settings) == {}


def test_sql_that_lets_personal_data_out_publishes_nothing(settings: Settings, shop: Project, land: Land) -> None:
    land([*hostile_rows(), in_next_week(1000)])
    with changed(shop, "models/staging/stg_shop__events.yml", staging_yml(note="free_text")):
        exported = exporting(settings, shop)
    assert exported.published == []
    [withheld] = exported.withheld
    assert "hold personal data: exp_weekly__events: stg_shop__events.note (free_text) reaches" in withheld.reason
    assert export(settings, shop).manifest.rows > 0


@pytest.fixture
def with_groups(stack: Settings, shop: Project) -> Iterator[Project]:
    """The project with one more dataset, whose small groups are suppressed; not built and not published yet."""
    for table in (late.TABLE.identifier, (SCHEMA_NAME, "exp_weekly__groups")):
        with suppress(NoSuchTableError):
            load_catalog(stack).drop_table(table)
    files = {
        shop.directory / "models" / "exports" / "exp_weekly__groups.sql": GROUPS,
        shop.directory / "models" / "exports" / "exp_weekly__groups.yml": GROUPS_YML,
        shop.directory / "dbt_project.yml": DBT_PROJECT.replace('week: ""', 'week: "", small_group_threshold: 10'),
    }
    for file, content in files.items():
        file.write_text(content)
    parse(shop)
    yield shop
    for file in files:
        file.unlink()
    (shop.directory / "dbt_project.yml").write_text(DBT_PROJECT)
    parse(shop)


@pytest.mark.slow
def test_a_dataset_of_small_groups_is_published_once_per_week(
    settings: Settings, with_groups: Project, land: Land, tmp_path: Path
) -> None:
    """A trial and a failed upload do not count; late data, a withdrawal and another root change nothing."""
    catalog = load_catalog(settings)

    def sell(customers: int) -> None:
        rows = [(number, MONDAY, "a", Decimal(1), None, number, None, None) for number in range(customers)]
        land([*rows, *(in_next_week(1000 + number, "b") for number in range(12)), (9999, AFTER, *[None] * 6)])

    def groups(
        week: IsoWeek = WEEK, restated: str | None = None, announced: str = settings.export_root, **changed: str
    ) -> Exported:
        exported = Exported(week)
        project = replace(with_groups, env=with_groups.env | {"LAKEHOUSE_NOTIFY_ROOT": announced})
        exporter = Exporter(settings.changed(**changed), catalog, project, exported, restated=restated)
        exporter.run([week], ["groups"])
        assert exported.withheld == []
        return exported

    sell(20)
    assert not groups(export_root=str(tmp_path / "trial")).published[0].unchanged
    sell(21)
    folder = Path(settings.export_root) / "groups" / str(WEEK)
    folder.parent.mkdir(parents=True)
    folder.write_text("a file")
    with pytest.raises(UserError, match="The export stopped: Not a directory"):
        groups()
    folder.unlink()
    sell(22)
    [first] = groups().published
    assert (first.manifest.path, first.manifest.control_totals["customers"]) == ("groups/2020-W53/v1", "22")
    files = public_files(settings)

    sell(23)
    model = with_groups.directory / "models" / "exports" / "exp_weekly__groups.sql"
    model.write_text(GROUPS.replace("as order_value\nfrom marked", "as order_value, 1 as more\nfrom marked"))
    again = groups()
    assert ([version.unchanged for version in again.published], again.warnings) == ([True], [])
    assert public_files(settings) == files
    # Changed columns hold from the next unpublished week.
    [other] = groups(NEXT_WEEK).published
    assert (other.manifest.version, other.manifest.column_names[-1]) == (1, "more")

    # Another root that readers know is of the same lake.
    moved = {"export_root": str(tmp_path / "moved")}
    elsewhere = groups(announced=moved["export_root"], **moved)
    needed = "another version needs `lakehouse export run groups --restate --week 2020-W53 --reason ...`"
    assert elsewhere.published == []
    assert [warning.endswith(needed) for warning in elsewhere.warnings] == [True]

    publish.withdraw(open_target(settings), first.manifest.path, "a person was erased")
    assert [warning.endswith(needed) for warning in groups().warnings] == [True]
    [second] = groups(restated="prices were wrong").published
    manifest = json.loads((file_of(second).parent / "manifest.json").read_text())
    assert (manifest["version"], manifest["supersedes"], manifest["restated"]) == (2, 1, "prices were wrong")
    assert manifest["reason"] == "restated, v1 was withdrawn: prices were wrong"
    assert manifest["control_totals"]["customers"] == "23"
    sell(24)
    assert groups().published[0].manifest.version == 2
    [third] = groups(restated="one more").published
    assert third.manifest.reason == "restated, late or corrected data: one more"


@pytest.mark.slow
def test_an_empty_topic_completes_a_week_by_silence_but_none_of_small_groups(
    settings: Settings, with_groups: Project, land: Land
) -> None:
    admin = AdminClient(connections.kafka_client(settings))
    admin.create_topics([NewTopic("shop.events", 1, 1)])["shop.events"].result()
    table = load_catalog(settings).load_table((SCHEMA_NAME, "events"))
    topic_id = Broker(settings, 10).describe("shop.events").topic_id
    try:
        with table.transaction() as change:
            change.set_properties({"lakehouse.topic-id": topic_id})
        land([])
        exported = exporting(settings, with_groups)
    finally:
        with table.transaction() as change:
            change.remove_properties("lakehouse.topic-id")
        admin.delete_topics(["shop.events"])["shop.events"].result()
    silence = "2020-W53 is complete by silence: shop.events has landed nothing"
    assert exported.warnings == [silence]
    [published] = exported.published
    assert (published.manifest.path, published.manifest.warnings) == ("events/2020-W53/v1", [silence])
    [withheld] = exported.withheld
    assert str(withheld).startswith("groups 2020-W53 is withheld: behind: shop.events has landed nothing, and silence")


@pytest.mark.slow
def test_a_dataset_that_cannot_be_published_costs_itself(settings: Settings, with_groups: Project, land: Land) -> None:
    land([(1, MONDAY, "a", *[None] * 5), in_next_week(1000)])
    folder = Path(settings.export_root) / "events" / str(WEEK)
    folder.parent.mkdir(parents=True)
    folder.write_text("a file")
    exported = exporting(settings, with_groups)
    assert [version.manifest.path for version in exported.published] == ["groups/2020-W53/v1"]
    [dataset] = exported.withheld
    assert str(dataset).startswith("events 2020-W53 is withheld: The export stopped: Not a directory ("), dataset
    # A week that fails costs itself, too.
    exported = Exported(WEEK)
    Exporter(settings, load_catalog(settings), with_groups, exported).run([EMPTY_WEEK, WEEK], ["events"])
    assert [version.manifest.path for version in exported.published] == ["events/2020-W52/v1"]
    assert [(dataset.dataset, dataset.week) for dataset in exported.withheld] == [("events", "2020-W53")]
    # Where nothing at all can be published, it is no matter of a dataset.
    with pytest.raises(UserError, match="The export stopped: Not a directory"):
        Exporter(settings, load_catalog(settings), with_groups, Exported(WEEK)).run([WEEK], ["events"])
