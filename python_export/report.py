"""The page beside the files: what a week brought, per channel and product, against the weeks before.

Its figures are those of published files and manifests, so whoever may read the files may read it; only the counts of
what was kept out of them come from the lake. It needs nothing from elsewhere: no script, no font, no picture.
"""

import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import duckdb
from pyhive import hive

from lakehouse import thrift
from lakehouse.errors import UserError
from lakehouse.settings import Settings
from lakehouse.weeks import IsoWeek
from python_export import csv_file, spark_sql
from python_export.announce import TEMPLATES, Figure, announcements, report_path
from python_export.manifest import Manifest, published
from python_export.target import Target, open_target

WEEKS = 8
PRODUCTS = 10
# Dataset, figure, and what analysts call it.
HEADLINES = (
    ("order_lines", "net_price", "Net sales"),
    ("order_lines", "rows", "Order lines"),
    ("completed_orders", "amount", "Paid"),
    ("customer_activity", "rows", "Active customers"),
)
KEPT_OUT = {
    "Dead letters: records that could not be decoded": "select sum(dead_letters) from ops.ops_ingest_batches",
    "Payments quarantined for their confirmation code": "select count(*) from masked.int_payments_quarantined",
    "Payments that complete no order": "select count(*) from joined.int_payments_unmatched",
    "Web shop items without an order or product": "select count(*) from joined.int_order_items_excluded",
    "Keys that were sent with more than one content": "select count(*) from ops.ops_conflicts",
}


@dataclass(frozen=True)
class Channel:
    """A sales channel: its net sales in the newest weeks, the last of them the report's; None if not published."""

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


def write(settings: Settings, week: IsoWeek) -> str:
    """Write the report of a week in the place of an older one, and return its address.

    Raises:
        UserError: a manifest or a file is damaged, or Spark could not count.
    """
    target = open_target(settings)
    with thrift.connect(settings) as cursor:
        kept_out = {label: _count(cursor, sql) for label, sql in KEPT_OUT.items()}
    versions = published(target)
    told = [one for one in announcements(target, versions) if one.manifest.week == str(week)]
    newest = {one.manifest.dataset: one for one in told}
    try:
        with tempfile.TemporaryDirectory() as scratch, csv_file.connect(Path(scratch)) as database:
            channels = _channels(database, target, versions, week, Path(scratch))
            products, suppressed = _products(database, target, versions, week, Path(scratch))
    except duckdb.Error as error:
        # Its message may quote a row.
        raise UserError(
            f"The report of {week} could not be made of the published files ({type(error).__name__})",
            "See what `lakehouse export verify` says of them",
        ) from None
    page = TEMPLATES.get_template("report.html").render(
        week=week,
        last_day=week.end - timedelta(days=1),
        headlines=[
            (label, figure)
            for dataset, name, label in HEADLINES
            for figure in (newest[dataset].figures if dataset in newest else ())
            if figure.name == name
        ],
        weeks=[str(one) for one in _weeks(week)],
        channels=channels,
        products=products,
        suppressed=suppressed,
        kept_out=kept_out,
        told=told,
        newest=newest,
    )
    target.put(report_path(week), page.encode())
    return target.address(report_path(week))


def _weeks(week: IsoWeek) -> list[IsoWeek]:
    return [week.minus(weeks) for weeks in reversed(range(WEEKS))]


def _channels(
    database: duckdb.DuckDBPyConnection, target: Target, versions: list[Manifest], week: IsoWeek, scratch: Path
) -> list[Channel]:
    """Return the channels of the shown weeks, the one that sold most first. The report's week is loaded last."""
    sales: dict[str, dict[IsoWeek, Decimal]] = {}
    for one in _weeks(week):
        if _load(database, target, versions, "order_lines", one, scratch):
            for name, amount in database.execute(
                "select channel, sum(cast(net_price as decimal(18, 2))) from order_lines group by channel"
            ).fetchall():
                sales.setdefault(name or "unknown", {})[one] = amount or Decimal(0)
    found = [Channel(name, [by_week.get(one) for one in _weeks(week)]) for name, by_week in sales.items()]
    return sorted(found, key=lambda channel: (-channel.figure.now, channel.name))


def _products(
    database: duckdb.DuckDBPyConnection, target: Target, versions: list[Manifest], week: IsoWeek, scratch: Path
) -> tuple[list[Product], int]:
    """Return the products that sold most, and how many are left out because few customers bought them."""
    if not _load(database, target, versions, "product_demand", week, scratch):
        return [], 0
    # If they are published, `_channels` has left those of the week loaded.
    has_lines = any((one.dataset, one.week) == ("order_lines", str(week)) for one in versions)
    category = "(select min(category) from order_lines where product_key = demand.product_key)" if has_lines else "null"
    rows = database.execute(
        f"""
        select
            product_key, coalesce({category}, ''), channel_group,
            cast(revenue as decimal(18, 2)) as money, cast(quantity as bigint), cast(customer_count as bigint)
        from product_demand as demand
        where is_suppressed = 'false'
        order by money desc, product_key
        limit {PRODUCTS}
        """
    ).fetchall()
    [(suppressed,)] = database.execute("select count(*) from product_demand where is_suppressed = 'true'").fetchall()
    return [Product(*row) for row in rows], suppressed


def _load(
    database: duckdb.DuckDBPyConnection,
    target: Target,
    versions: Iterable[Manifest],
    dataset: str,
    week: IsoWeek,
    scratch: Path,
) -> bool:
    """Load the newest version of a file as a table of texts; return False if there is none."""
    found = [one for one in versions if (one.dataset, one.week) == (dataset, str(week))]
    if not found:
        return False
    newest = found[-1]
    file = target.fetch(f"{newest.path}/{newest.file}", scratch)
    rows = csv_file.rows_of(file, newest.column_names)
    database.execute(f"create or replace table {dataset} as select * from {rows}")
    return True


def _count(cursor: hive.Cursor, sql: str) -> int:
    [(count,)] = spark_sql.run(cursor, sql, "count what was kept out")
    return count or 0
