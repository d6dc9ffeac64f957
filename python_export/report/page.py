"""The page beside the files: what a week brought, per channel and product, against the weeks before.

Its figures are those of manifests, and of the published file of product demand, so whoever may read the files may read
it; only the counts of what was kept out of them come from the lake. It needs nothing from elsewhere: no script, no
font, no picture.
"""

import tempfile
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from itertools import islice
from pathlib import Path

import duckdb
from jinja2 import FileSystemLoader
from pyhive import hive

from lakehouse import thrift
from lakehouse.environment import PROJECT_ROOT, environment
from lakehouse.errors import UserError
from lakehouse.settings import Settings
from lakehouse.weeks import IsoWeek
from python_export.datasets import declared, spark_sql
from python_export.datasets.declared import Project
from python_export.datasets.shown import Chart, Shown
from python_export.files import csv_file
from python_export.publishing.manifest import Manifest, paths, readable
from python_export.publishing.target import Target, open_target
from python_export.telling.announce import TEMPLATES, Announcement, Figure, announcements, report_path
from python_export.telling.outbox import Notice

TEMPLATE = TEMPLATES.overlay(loader=FileSystemLoader(Path(__file__).parent / "templates")).get_template("report.html")
WEEKS = 8
PRODUCTS = 10
KEPT_OUT = {
    "Dead letters: records that could not be decoded": "select sum(dead_letters) from ops.ops_ingest_batches",
    "Payments quarantined for their confirmation code": "select count(*) from masked.int_payments_quarantined",
    "Payments that complete no order": "select count(*) from joined.int_payments_unmatched",
    "Web shop items without an order or product": "select count(*) from joined.int_order_items_excluded",
    "Keys that were sent with more than one content": "select count(*) from ops.ops_conflicts",
}


@dataclass(frozen=True)
class Group:
    """One value of a chart: its total in the newest weeks, the last of them the report's; None if not published."""

    name: str
    history: list[Decimal | None]

    @property
    def figure(self) -> Figure:
        """The newest week beside the one before."""
        return Figure(self.name, self.history[-1] or Decimal(0), self.history[-2])


@dataclass(frozen=True)
class Product:
    """A product whose figures are published."""

    name: str
    category: str
    group: str
    revenue: Decimal
    quantity: int
    customers: int


def write(settings: Settings, week: IsoWeek, notices: Iterable[Notice] = ()) -> str:
    """Write the report of a week in the place of an older one, and return its address. On its top stand its notices.

    Raises:
        UserError: a manifest or a file is damaged, or Spark could not count.
    """
    target = open_target(settings)
    shown = declared.shown(Project(PROJECT_ROOT, environment()))
    charts = {dataset: one.chart for dataset, one in shown.items() if one.chart}
    with thrift.connect(settings) as cursor:
        kept_out = {label: _count(cursor, sql) for label, sql in KEPT_OUT.items()}
    versions = needed(target, week, charts)
    told = [one for one in announcements(target, versions, shown) if one.manifest.week == str(week)]
    newest = {one.manifest.dataset: one for one in told}
    try:
        products, suppressed = _products(target, versions, week)
    except duckdb.Error as error:
        # Its message may quote a row.
        raise UserError(
            f"The report of {week} could not be made of the published files ({type(error).__name__})",
            "See what `lakehouse export verify` says of them",
        ) from None
    page = TEMPLATE.render(
        week=week,
        last_day=week.end - timedelta(days=1),
        headlines=_headlines(shown, newest),
        weeks=[str(one) for one in _weeks(week)],
        charts=[(chart, _groups(versions, dataset, chart, week)) for dataset, chart in charts.items()],
        products=products,
        suppressed=suppressed,
        kept_out={label: count for label, count in kept_out.items() if count is not None},
        notices=[notice.text for notice in notices if notice.week == str(week)],
        told=told,
        newest=newest,
    )
    target.put(report_path(week), page.encode())
    return target.address(report_path(week))


def _headlines(shown: Mapping[str, Shown], newest: Mapping[str, Announcement]) -> list[tuple[str, Figure]]:
    """Return the figures at the top with what they are called, in their places."""
    found = []
    for dataset, one in newest.items():
        figures = {figure.name: figure for figure in one.figures}
        headlines = shown[dataset].headlines if dataset in shown else ()
        found += [(headline, figures[headline.figure]) for headline in headlines if headline.figure in figures]
    return [(headline.label, figure) for headline, figure in sorted(found, key=lambda pair: pair[0].place)]


def needed(target: Target, week: IsoWeek, charted: Collection[str]) -> list[Manifest]:
    """Return the manifests that a report is made of: of its week all, of what it is compared with the newest.

    Of the datasets that are `charted` that is more than one week.
    """
    by_week: dict[tuple[str, str], list[str]] = {}
    for path in paths(target):
        dataset, label, _ = path.split("/")
        by_week.setdefault((dataset, label), []).append(path)
    found: list[Manifest] = []
    for (dataset, label), listed in by_week.items():
        if label == str(week):
            found += readable(target, listed)
        elif label == str(week.minus(1)) or (dataset in charted and label in map(str, _weeks(week))):
            found += islice(readable(target, reversed(listed)), 1)
    return found


def _weeks(week: IsoWeek) -> list[IsoWeek]:
    return [week.minus(weeks) for weeks in reversed(range(WEEKS))]


def _groups(versions: list[Manifest], dataset: str, chart: Chart, week: IsoWeek) -> list[Group]:
    """Return the values of a chart in the shown weeks, the one with the largest total first."""
    totals: dict[str, dict[IsoWeek, Decimal]] = {}
    for one in _weeks(week):
        version = _newest(versions, dataset, one)
        for name, by_column in (version.totals_by.get(chart.by, {}) if version else {}).items():
            # A version of before the measure was declared has no figure of it.
            if chart.of in by_column:
                totals.setdefault(name or "unknown", {})[one] = Decimal(by_column[chart.of])
    found = [Group(name, [by_week.get(one) for one in _weeks(week)]) for name, by_week in totals.items()]
    return sorted(found, key=lambda group: (-group.figure.now, group.name))


def _products(target: Target, versions: list[Manifest], week: IsoWeek) -> tuple[list[Product], int]:
    """Return the products that sold most, and how many are left out because few customers bought them."""
    demand = _newest(versions, "product_demand", week)
    if demand is None:
        return [], 0
    lines = _newest(versions, "order_lines", week)
    with tempfile.TemporaryDirectory() as scratch, csv_file.connect(Path(scratch)) as database:
        category = "null"
        if lines:
            category = (
                f"(select min(category) from {_rows(target, lines, scratch)} where product_key = best.product_key)"
            )
        rows = database.execute(
            f"""
            with best as (
                select *, cast(revenue as decimal(38, 2)) as money
                from {_rows(target, demand, scratch)}
                where is_suppressed = 'false'
                order by money desc, product_key
                limit {PRODUCTS}
            )
            select
                product_key, coalesce({category}, ''), channel_group,
                money, cast(quantity as bigint), cast(customer_count as bigint)
            from best
            order by money desc, product_key
            """
        ).fetchall()
    return [Product(*row) for row in rows], demand.small_groups.suppressed if demand.small_groups else 0


def _newest(versions: Iterable[Manifest], dataset: str, week: IsoWeek) -> Manifest | None:
    """Return the newest version of a week, given the versions of it in order."""
    found = [one for one in versions if (one.dataset, one.week) == (dataset, str(week))]
    return found[-1] if found else None


def _rows(target: Target, manifest: Manifest, scratch: str) -> str:
    """Return the SQL of the rows of a published file, all as text."""
    file = target.fetch(f"{manifest.path}/{manifest.file}", Path(scratch))
    return csv_file.rows_of(file, manifest.column_names)


def _count(cursor: hive.Cursor, sql: str) -> int | None:
    """Return a count, None where no build has made the table yet: `export run` builds no more than its files need."""
    try:
        [(count,)] = spark_sql.run(cursor, sql, "count what was kept out")
    except UserError as error:
        if "TABLE_OR_VIEW_NOT_FOUND" in error.message:
            return None
        raise
    return count or 0
