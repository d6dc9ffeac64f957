"""What a review found, its verdict, and the report: JSON for programs, Markdown for a pull request, a page for details.

It has counts and sums. Values of rows are in the samples alone, which are on the page: the same Markdown as HTML, with
samples and SQL. The page makes no requests.
"""

import json
import re
import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from decimal import Decimal
from difflib import HtmlDiff
from pathlib import Path

from jinja2 import Environment, FileSystemLoader
from markdown_it import MarkdownIt
from markupsafe import Markup

from python_common import private_files
from python_common.errors import UserError
from python_dev.review.contracts import NAMED, Finding, few
from python_dev.review.cost import Cost
from python_dev.review.scope import BY_DBT, ReviewScope
from python_dev.review.table_diff import TableChange

VERSION = 1
EXIT_CODES = {"clean": 0, "look": 10, "breaking": 11, "undecided": 12}
# What a comment of a pull request holds with ease.
MARKDOWN_BYTES = 20_000
LISTED = 30
ACCEPT = re.compile(r"^\s*review-accept:[ \t]*(.*?)\s*$", re.MULTILINE)
ACCEPTED = re.compile(r"(\w+(?:\.\w+)?) rows<=(\d+(?:\.\d+)?)(%?) (\S.*)")


@dataclass(frozen=True)
class TableReport:
    """What the change does to a table, or to a week of an exported one, by the name of its node."""

    node: str
    change: TableChange
    week: str | None = None

    @property
    def share(self) -> float:
        """The share of rows that change, above 1 if columns do."""
        change = self.change
        return bool(change.missing) + (change.added + change.removed + change.changed) / max(change.rows_before or 0, 1)

    @property
    def rows(self) -> str:
        """How many rows change."""
        change = self.change
        counts = {"changed": change.changed, "added": change.added, "removed": change.removed}
        phrases = [f"{count:,} {what}" for what, count in counts.items() if count] or ["none"]
        return f"{', '.join(phrases)} of {change.rows_before or 0:,}{'' if change.is_keyed else ', without a key'}"

    @property
    def columns(self) -> list[str]:
        """What happens to each column that changes, those with a sum first, then those with most changed rows."""
        lines = [f"{column} only {side}" for side, columns in self.change.missing.items() for column in columns]
        by_column = self.change.columns.items()
        for name, column in sorted(by_column, key=lambda pair: (not pair[1].difference, -pair[1].changed, pair[0])):
            share = column.changed / (self.change.rows_before or 1)
            phrases = (
                f"{column.changed:,} changed ({share:.1%})" if column.changed else "",
                f"NULLs {column.nulls:+,}" if column.nulls else "",
                f"distinct {column.distinct:+,}" if column.changed and column.distinct else "",
                f"sum {column.difference:+,f}" if column.difference else "",
            )
            if any(phrases):
                lines.append(f"{name}: {', '.join(filter(None, phrases))}")
        return lines


@dataclass(frozen=True)
class Acceptance:
    """A change of rows that the author names, with its bound: `fct_trades.amount rows<=1% why`.

    `object` is a node, or a column of it that alone may change; `most` is a number of rows, or a share of those before.
    """

    object: str
    most: Decimal
    is_share: bool
    reason: str

    def covers(self, table: TableReport) -> bool:
        """Return whether all that changes in a table is accepted."""
        node, _, column = self.object.partition(".")
        change = table.change
        rows = change.added + change.removed + change.changed
        changed = {name for name, of_column in change.columns.items() if of_column.changed}
        if node != table.node or change.missing or (column and (changed != {column} or rows != change.changed)):
            return False
        return rows <= (self.most * (change.rows_before or 0) / 100 if self.is_share else self.most)


def acceptances(text: str) -> list[Acceptance]:
    """Return what the lines of a pull request's text accept that begin with `review-accept:`.

    Raises:
        UserError: such a line has another form.
    """
    accepted = []
    for entry in ACCEPT.findall(text):
        match = ACCEPTED.fullmatch(entry)
        if not match:
            raise UserError(
                f"'review-accept: {entry}' accepts nothing", "Write review-accept: NODE[.COLUMN] rows<=N[%] REASON"
            )
        accepted.append(Acceptance(match[1], Decimal(match[2]), bool(match[3]), match[4]))
    return accepted


@dataclass(frozen=True)
class Review:
    """All that a review found; `is_static` if no data was compared.

    `tables` are the tables and weeks that could change, equal ones included. `exposures` have the names of the changed
    and affected nodes behind them. `tests` are those that answer otherwise, with both answers; `sql` is that of changed
    nodes, and `costs` those of tables that were built, before and after.
    """

    base: str
    change: str
    is_static: bool
    scope: ReviewScope
    findings: list[Finding]
    names: dict[str, str]
    exposures: dict[str, list[str]]
    tables: list[TableReport] = field(default_factory=list)
    tests: dict[str, tuple[str, str]] = field(default_factory=dict)
    not_compared: dict[str, str] = field(default_factory=dict)
    sql: dict[str, tuple[str, str]] = field(default_factory=dict)
    costs: dict[str, tuple[Cost, Cost]] = field(default_factory=dict)
    acceptances: list[Acceptance] = field(default_factory=list)

    @property
    def differing(self) -> list[TableReport]:
        """The tables and weeks that change: those of changed nodes, then what they reach, each by its share of rows."""
        changed = self.listed([*self.scope.added, *self.scope.own])
        differing = [table for table in self.tables if not table.change.is_equal]
        return sorted(differing, key=lambda table: (table.node not in changed, -table.share))

    @property
    def affected(self) -> list[str]:
        """The exposures whose tables differ; without data those that can."""
        reached = {table.node for table in self.differing} | {*self.not_compared}
        reached |= {*self.listed([*self.scope.added, *self.scope.removed])}
        return sorted(
            label for label, names in self.exposures.items() if self.is_static or not reached.isdisjoint(names)
        )

    def severe(self, *severities: str) -> list[Finding]:
        """Return the findings of some severities, in their order."""
        return [finding for severity in severities for finding in self.findings if finding.severity == severity]

    @property
    def reasons(self) -> dict[str, str]:
        """What the verdict follows from besides the first findings, by kind."""
        by_dbt = {reason for reason in self.scope.changed.values() if reason.endswith(BY_DBT)}
        by_macros = {reason.partition(", by ")[2] for reason in self.scope.changed.values() if ", by " in reason}
        findings = self.severe("breaking", "look")[NAMED:]
        names: dict[str, Iterable[str]] = {
            "also breaking": [one.object for one in findings if one.severity == "breaking"],
            "also to look at": [one.object for one in findings if one.severity == "look"],
            "tests with another answer": self.tests,
            "not compared": self.not_compared,
            "tables and weeks that change": [f"{one.node} {one.week or ''}".rstrip() for one in self.differing],
            "hooks": self.scope.hooks,
            "other code": sorted(self.listed(self.scope.own)) if self.is_static else [],
            "other macros": sorted({*by_dbt, *by_macros}) if self.is_static else [],
            "declared otherwise": self.listed(self.scope.declared) if self.is_static else [],
        }
        return {what: few(named) for what, named in names.items() if named}

    @property
    def accepted(self) -> dict[str, str]:
        """The bounds and reasons of accepted changes, by what is accepted."""
        used = [entry for entry in self.acceptances if any(map(entry.covers, self.differing))]
        return {entry.object: f"rows<={entry.most}{'%' * entry.is_share} {entry.reason}" for entry in used}

    @property
    def verdict(self) -> str:
        """One of EXIT_CODES: what is breaking comes before what could not be decided."""
        if self.severe("breaking"):
            return "breaking"
        if self.not_compared:
            return "undecided"
        is_code_changed = bool(self.scope.changed or self.scope.added or self.scope.removed)
        is_data_changed = any(not any(entry.covers(table) for entry in self.acceptances) for table in self.differing)
        is_other = self.tests or self.scope.hooks or self.severe("look") or is_data_changed
        return "look" if is_other or (self.is_static and is_code_changed) else "clean"

    def listed(self, unique_ids: Iterable[str]) -> list[str]:
        """Return names of nodes."""
        return [self.names.get(unique_id, unique_id) for unique_id in unique_ids]


def write(review: Review, directory: Path) -> Path:
    """Write review.json, review.html and review.md, and return the path of the latter."""
    private_files.directory(directory)
    content = {"version": VERSION, "verdict": review.verdict, **asdict(review)}
    for table in content["tables"]:
        del table["change"]["samples"]
    private_files.write(directory / "review.json", json.dumps(content, indent=2, default=str))
    private_files.write(directory / "review.html", page(review))
    return private_files.write(directory / "review.md", markdown(review))


def markdown(review: Review) -> str:
    """Return the report for a pull request, at most MARKDOWN_BYTES: what is longer lists less."""
    for listed in (LISTED, 10, 3, 0):
        text = _rendered("review.md", review=review, first=NAMED, most=listed)
        if len(text.encode()) <= MARKDOWN_BYTES:
            break
    return text


def page(review: Review) -> str:
    """Return the report as one file of HTML, with samples, and with the SQL of both sides next to each other."""
    difference = HtmlDiff(tabsize=4)
    sql = {
        # It escapes its input.
        name: Markup(difference.make_table(before.splitlines(), after.splitlines(), context=True))  # noqa: S704
        for name, (before, after) in review.sql.items()
    }
    text = _rendered("review.md", review=review, first=NAMED, most=sys.maxsize, is_page=True)
    content = Markup(MarkdownIt("commonmark").enable("table").render(text))  # noqa: S704 - of escaped values
    return _rendered("review.html", verdict=review.verdict, content=content, sql=sql)


def _as_markdown(value: object) -> object:
    """Return text as Markdown that shows it in one line; what a macro of the template made stays."""
    if isinstance(value, Markup) or not isinstance(value, str):
        return value
    return Markup(re.sub(r"[\\`*<|&]|\[(?=[^\]]*\]\()", r"\\\g<0>", " ".join(value.split())))  # noqa: S704


def _rendered(name: str, **values: object) -> str:
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "pages"),
        autoescape=True,
        finalize=None if name.endswith(".html") else _as_markdown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return re.sub(r"\n{3,}", "\n\n", environment.get_template(name).render(values))
