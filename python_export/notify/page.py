"""The page next to the files: what a week brought, against the weeks before, as the models of the exports declare it.

Its figures are those of manifests, and of the published files that it ranks, so all readers of the files may read
it; only the counts of what they exclude come from the lake. It needs nothing from elsewhere: no script, no
font, no picture.
"""

import re
import tempfile
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

from duckdb import DuckDBPyConnection
from pyhive import hive
from pyiceberg.catalog import Catalog

from python_common.config.environment import PROJECT_ROOT, environment
from python_common.config.settings import Settings
from python_common.errors import Issue, UserError
from python_common.log import log
from python_common.spark import spark_sql, thrift
from python_common.weeks import IsoWeek
from python_dbt.manifest import DbtManifest
from python_dbt.project import Project
from python_export.csv import csv_file
from python_export.datasets import declared
from python_export.datasets.declared import Dataset
from python_export.datasets.dictionary import FORMULA_STARTS
from python_export.datasets.report_spec import Chart, Ranking, ReportSpec, excluded_queries
from python_export.notify import index, outbox
from python_export.notify.exported import Exported
from python_export.notify.messages import TEMPLATES, Announcement, Figure, announcement, counted, report_path
from python_export.publishing import publish
from python_export.publishing.layout import REPORTS
from python_export.publishing.manifest import Manifest, outdated, published
from python_export.publishing.target import Target, open_target

WEEKS = 8
WEEKS_OF_MEAN = 4
RANKED = 10
# The quote that keeps a spreadsheet from running a text of a file.
GUARD = re.compile(f"^'(?='*[{re.escape(FORMULA_STARTS)}])")
Versions = Mapping[tuple[str, str], Manifest]
"""The newest version by dataset and week."""


@dataclass(frozen=True)
class Group:
    """One value of a chart: its total, and that of each of the newest weeks; None where not published."""

    figure: Figure
    history: list[Decimal | None]


@dataclass(frozen=True)
class Top:
    """The first rows of a ranking: how much each has, then its cells, which are shown as text, number or bar.

    They are of `files`. `suppressed` groups are excluded because they are small; None if none can be.
    """

    ranking: Ranking
    cell_formats: list[str]
    rows: list[tuple[Any, ...]]
    suppressed: int | None
    files: list[Manifest]


def write_all(settings: Settings, catalog: Catalog, exported: Exported) -> list[str]:
    """Write the index, the reports of a run, and missing ones; return their addresses, that of the newest week last."""
    # First, because a report needs Spark too.
    exported.current = index.write(open_target(settings))
    written = write(settings, exported.weeks(), exported.current, exported.notices())
    return [*write_missing(settings, catalog, exported.current), *written]


def write_missing(settings: Settings, catalog: Catalog, listed: Collection[Manifest]) -> list[str]:
    """Write the reports that the index links, but a withdrawal deleted or a dead run did not write; returns addresses.

    Raises:
        UserError: Spark could not count.
    """
    target = open_target(settings)
    reports = target.files(REPORTS)
    weeks = sorted(week for week in {manifest.week for manifest in listed} if report_path(week) not in reports)
    notices = [notice for week in weeks for notice in outbox.notices(catalog, target, week)]
    return write(settings, weeks, listed, notices)


def withdraw(target: Target, versions: Collection[str], reason: str) -> None:
    """Withdraw the versions at some paths, after the reports that have figures of their weeks: better none than wrong.

    Raises:
        ManifestError: a manifest cannot be read.
    """
    for week in {path.split("/")[1] for path in versions}:
        for later in range(WEEKS):
            target.delete(report_path(IsoWeek.parse(week).minus(-later)))
    for path in versions:
        publish.withdraw(target, path, reason)
        log.info("%s is withdrawn", target.address(path))


def write(
    settings: Settings, weeks: Collection[str], listed: Collection[Manifest], notices: Collection[Issue] = ()
) -> list[str]:
    """Write the reports of some weeks, replacing older ones, and return their addresses. On top are a week's notices.

    `listed` are the manifests that the index lists. A chart without a published version of the week states so; a
    ranking without a readable file is omitted.

    Raises:
        UserError: Spark could not count.
    """
    if not weeks:
        return []
    project = Project(PROJECT_ROOT, environment())
    manifest = project.manifest() if project.manifest_path.is_file() else DbtManifest()
    # The datasets of this root's audience.
    datasets = declared.load(project) if manifest.nodes else {}
    # The counts are of all weeks, so they are read once.
    with thrift.connect(settings) as cursor:
        counts = {label: _count(cursor, sql) for label, sql in excluded_queries(manifest).items()}
    excluded = {label: count for label, count in counts.items() if count is not None}
    title = declared.title(project)
    target = open_target(settings)
    return [_write(target, title, datasets, excluded, week, listed, notices) for week in map(IsoWeek.parse, weeks)]


def _write(
    target: Target,
    title: str,
    datasets: Mapping[str, Dataset],
    excluded: Mapping[str, int],
    week: IsoWeek,
    listed: Collection[Manifest],
    notices: Iterable[Issue],
) -> str:
    of_week = [notice for notice in notices if notice.week == str(week)]
    report_specs = {name: dataset.display for name, dataset in datasets.items()}
    charts = {name: of_dataset.chart for name, of_dataset in report_specs.items() if of_dataset.chart}
    versions = published(target, week=str(week))
    by_week = {(one.dataset, one.week): one for one in (*listed, *versions) if not one.withdrawn}
    before = _weeks(week)[-1 - WEEKS_OF_MEAN : -1]
    announced = [
        announcement(
            target,
            version,
            by_week.get((version.dataset, str(week.minus(1)))),
            report_specs,
            [one for past in before if (one := by_week.get((version.dataset, str(past))))],
        )
        for version in versions
    ]
    newest = {version.manifest.dataset: version for version in announced}
    rankings, lines = {}, [notice.message for notice in of_week]
    for name, dataset in datasets.items():
        if ranking := dataset.display.ranking:
            try:
                rankings[name] = _top(target, by_week, dataset, ranking, week)
            except (FileNotFoundError, UserError):
                lines.append(f"'{ranking.title}' is missing: see what `lakehouse export verify --week {week}` reports")
    page = TEMPLATES.get_template("report.html").render(
        title=title,
        week=week,
        last_day=week.end - timedelta(days=1),
        headlines=_headlines(report_specs, newest),
        weeks=[str(charted_week) for charted_week in _weeks(week)],
        charts={name: (chart, _groups(by_week, name, chart, week)) for name, chart in charts.items()},
        rankings={name: top for name, top in rankings.items() if top},
        counted=counted,
        weeks_of_mean=WEEKS_OF_MEAN,
        datasets=list(datasets),
        exclusions={
            name: [*_exclusions(version.manifest, of_week), *filter(None, [outdated(version.manifest, listed)])]
            for name, version in newest.items()
        },
        excluded=excluded,
        withheld={notice.object: notice.message for notice in of_week if notice.object},
        notices=lines,
        announced=announced,
        newest=newest,
    )
    target.put(report_path(week), page.encode())
    return target.address(report_path(week))


def _exclusions(manifest: Manifest, notices: Iterable[Issue]) -> list[str]:
    """Return what a file does not have of its week, and why."""
    exclusions = [notice.message for notice in notices if notice.object == manifest.dataset]
    exclusions += [f"quarantined, {reason}: {count:,}" for reason, count in manifest.quarantined_by_reason.items()]
    exclusions += [
        f"withheld, may be personal data, {what}: {count:,}" for what, count in manifest.withheld_rows.items()
    ]
    if (groups := manifest.small_groups) and groups.suppressed:
        threshold = f"groups of fewer than {groups.threshold} persons, and the next larger one of a total"
        exclusions.append(f"suppressed, {threshold}: {groups.suppressed:,}")
    return exclusions


def _headlines(
    report_specs: Mapping[str, ReportSpec], newest: Mapping[str, Announcement]
) -> list[tuple[str, Figure, Manifest]]:
    headlines = [
        (headline, figure, version.manifest)
        for dataset, version in newest.items()
        for headline in (report_specs[dataset].headlines if dataset in report_specs else ())
        for figure in version.figures
        if figure.name == headline.figure
    ]
    headlines.sort(key=lambda headline: headline[0].place)
    return [(headline.label, figure, manifest) for headline, figure, manifest in headlines]


def _weeks(week: IsoWeek) -> list[IsoWeek]:
    return [week.minus(weeks) for weeks in reversed(range(WEEKS))]


def _groups(versions: Versions, dataset: str, chart: Chart, week: IsoWeek) -> list[Group] | None:
    """Return the values of a chart in the shown weeks, the one with the largest total first.

    None if no version of the week has these totals. A value that a published week lacks is 0 there.
    """
    totals: dict[IsoWeek, dict[str, Decimal]] = {}
    for past in _weeks(week):
        version = versions.get((dataset, str(past)))
        by_value = version.totals_by.get(chart.by) if version else None
        # A version of before the measure was declared has no figure of it.
        if by_value is not None and all(chart.of in by_column for by_column in by_value.values()):
            totals[past] = {name or "unknown": Decimal(of[chart.of]) for name, of in by_value.items()}
    if week not in totals:
        return None
    groups = []
    for name in {name for by_name in totals.values() for name in by_name}:
        history = [totals[past].get(name, Decimal(0)) if past in totals else None for past in _weeks(week)]
        earlier = tuple(amount for amount in history[-1 - WEEKS_OF_MEAN : -1] if amount is not None)
        groups.append(Group(Figure(name, totals[week].get(name, Decimal(0)), history[-2], earlier), history))
    return sorted(groups, key=lambda group: (group.figure.now.copy_negate(), group.figure.name))


def _top(target: Target, versions: Versions, dataset: Dataset, ranking: Ranking, week: IsoWeek) -> Top | None:
    """Return the first rows of a ranking and what is shown of them; None without a file that has its columns."""
    version = versions.get((dataset.name, str(week)))
    made_by = {ranking.by, ranking.row_key, *filter(None, [dataset.suppressed])}
    if version is None or not made_by <= set(version.column_names):
        return None
    names = dict.fromkeys(ranked.of for ranked in ranking.columns if ranked.of)
    others = {of: other for of in names if (other := versions.get((of, str(week))))}
    types = {column.name: column.type for column in version.columns}
    cells, cell_formats = [], []
    for ranked in ranking.columns:
        is_number = not ranked.of and ranked.column in version.control_totals
        cell_formats.append("bar" if ranked.column == ranking.by else "number" if is_number else "text")
        cell = "null" if ranked.of or ranked.column not in types else csv_file.name(ranked.column)
        cells.append(cell if cell_formats[-1] == "text" else f"cast({cell} as {types[ranked.column]})")
    by, key = f"cast({csv_file.name(ranking.by)} as {types[ranking.by]})", csv_file.name(ranking.row_key)
    where = f"where {csv_file.name(dataset.suppressed)} = 'false'" if dataset.suppressed else ""
    failed = f"The report of {week} could not be made of the published files"
    remedy = "See what `lakehouse export verify` reports"
    with tempfile.TemporaryDirectory() as scratch, csv_file.reading(Path(scratch), failed, remedy) as database:
        best = database.execute(
            f"""
            select {key}, coalesce({by}, 0), {", ".join(cells)} from {_rows(target, version, scratch)} {where}
            order by {by} desc nulls last, {key} limit {RANKED}
            """
        ).fetchall()
        keys = [row[0] for row in best]
        found = {
            of: _least_rows(database, _rows(target, other, scratch), other, ranking, keys)
            for of, other in others.items()
        }
    rows = []
    for name, amount, *own in best:
        row = [
            found.get(ranked.of, {}).get((name, ranked.column)) if ranked.of else cell
            for ranked, cell in zip(ranking.columns, own, strict=True)
        ]
        row[0] = name if row[0] is None else row[0]
        rows.append((amount, *(GUARD.sub("", cell) if isinstance(cell, str) else cell for cell in row)))
    suppressed = version.small_groups.suppressed if version.small_groups else None
    return Top(ranking, cell_formats, rows, suppressed, [version, *others.values()])


def _least_rows(
    database: DuckDBPyConnection, rows: str, manifest: Manifest, ranking: Ranking, keys: list[str]
) -> dict[tuple[str, str], str | None]:
    """Return the cells that a ranking has of another dataset, by the ranking's key and their column.

    All of a key are from its least row: a name and a brand of two rows may never have been together.
    """
    ranked = [one for one in ranking.columns if one.of == manifest.dataset]
    key, columns = ranked[0].key or ranking.row_key, [one.column for one in ranked]
    if not {key, *columns} <= set(manifest.column_names):
        return {}
    name, cells = f"{csv_file.text(ranked[0].prefix)} || {csv_file.name(key)}", ", ".join(map(csv_file.name, columns))
    # The least row of a key comes last, and so replaces the others.
    sql = f"select {name}, {cells} from {rows} where {name} in $keys order by all desc nulls first"
    least = database.execute(sql, {"keys": keys}).fetchall()
    return {(row[0], column): cell for row in least for column, cell in zip(columns, row[1:], strict=True)}


def _rows(target: Target, manifest: Manifest, scratch: str) -> str:
    file = target.fetch(f"{manifest.path}/{manifest.file}", Path(scratch))
    return csv_file.rows_of(file, manifest.column_names)


def _count(cursor: hive.Cursor, sql: str) -> int | None:
    """Return a count, None where no build has made the table yet: `export run` builds no more than its files need."""
    try:
        [(count,)] = spark_sql.run(cursor, sql, "count what is excluded")
    except UserError as error:
        if "TABLE_OR_VIEW_NOT_FOUND" in error.message:
            return None
        raise
    return count or 0
