"""Macros alone: the week rule against Python's calendar, the rule of small groups, and generic tests."""

import datetime as datetime_module
import hashlib
import random
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import duckdb
import jinja2
import pytest

from python_common.config.environment import PROJECT_ROOT
from python_common.config.settings import Settings
from python_common.weeks import IsoWeek
from python_dbt.pii import masks

Show = Callable[[str], list[dict]]

FISCAL_DATE = "fiscal_date('date_day')"
NO_MONTH = "var fiscal_year_start_month: '{}' is not a month. Give its number, 1 to 12."
SUPPRESSED = "is_suppressed('persons', total='total', key='cell')"
NO_SIZE = "var small_group_threshold: '{}' is not a whole number from 1"


def test_sql_and_python_agree_on_every_week_edge_and_leap_day(stack: Settings, show: Show) -> None:
    mondays = [IsoWeek.parse("2019-W52").start + timedelta(weeks=number) for number in range(12 * 53)]
    leap_days = [datetime(year, 2, 29, tzinfo=UTC) for year in (2020, 2024, 2028)]
    edges = [*mondays, *leap_days, *(day + timedelta(days=1) for day in leap_days)]
    moments = sorted({moment for edge in edges for moment in (edge - timedelta(microseconds=1), edge)})
    values = ", ".join(f"(timestamp '{moment:%Y-%m-%d %H:%M:%S.%f}')" for moment in moments)
    weeks = show(f"select {{{{ iso_week('moment') }}}} as week from values {values} as edges (moment) order by moment")
    assert [row["week"] for row in weeks] == [str(IsoWeek.of(moment)) for moment in moments]


def test_the_text_of_a_mask_differs_from_that_in_lakes() -> None:
    """A mask's version is a hash of its text, white space included: another text masks every lake again."""
    rendered = {
        pii: "\n".join(masks._rendered("mask_as", "value", pii, name, "source") for name in names)
        for pii, names in masks.load().classes.items()
        if names and pii != masks.AS_IS
    }
    assert {pii: hashlib.md5(text.encode()).hexdigest()[:16] for pii, text in rendered.items()} == {
        "user": "b9320f33989b79bc",
        "customer": "6a26a29610a97573",
        "email": "5a4d72e183afa060",
        "card_number": "22f2b8912b4181c8",
        "person_name": "137529dc6f345291",
        "postal_code": "431421212a36e317",
        "birth": "16023f350a9ee39e",
        "registration": "60203f10eac292a8",
    }


def test_the_exported_week_is_not_the_named_or_last_complete_one(stack: Settings, show: Show) -> None:
    [row] = show("select '{{ exported_weeks() | join }}' as label, '{{ monday(\"2026-W53\") }}' as monday")
    assert row == {"label": str(IsoWeek.last_complete(datetime.now(UTC))), "monday": "2026-12-28"}


@pytest.mark.parametrize(
    ("call", "variables", "message"),
    [
        ("monday('2025-W53')", {}, "var week: 2025-W53 does not exist. 2025 has ISO weeks W01 to W52."),
        ("monday('2026-W00')", {}, "var week: 2026-W00 does not exist. 2026 has ISO weeks W01 to W53."),
        ("monday('next')", {}, "var week: 'next' is not a week."),
        ("exported_weeks()", {"weeks": "2026-W1"}, "var week: '2026-W1' is not a week."),
        ("as_of_instants()", {"as_of": "yesterday"}, "var as_of: 'yesterday' is not an instant. Write it in UTC"),
        *((FISCAL_DATE, {"fiscal_year_start_month": month}, NO_MONTH.format(month)) for month in ("April", 0, 13, 1.5)),
        *((SUPPRESSED, {"small_group_threshold": size}, NO_SIZE.format(size)) for size in ("ten", 0, -1, 1.5)),
    ],
)
def test_a_variable_that_cannot_be_meant_is_refused(call: str, variables: dict[str, object], message: str) -> None:
    def refuse(text: str) -> None:
        raise ValueError(text)

    context = {
        "var": lambda name, default="": variables.get(name, default),
        "env_var": lambda name, default: default,
        "exceptions": {"raise_compiler_error": refuse},
        "modules": {"re": re, "datetime": datetime_module},
    }
    files = ("weeks", "fiscal_date", "is_suppressed")
    text = "".join((PROJECT_ROOT / "macros" / f"{file}.sql").read_text() for file in files) + "{{ " + call + " }}"
    with pytest.raises(ValueError, match=re.escape(message)):
        jinja2.Environment(extensions=["jinja2.ext.do"]).from_string(text).render(context)


def test_versions_with_a_gap_overlap_or_open_end_pass(stack: Settings, show: Show) -> None:
    versions = {
        "continuous": ((1, 2), (2, 2), (2, 5), (5, None)),
        "gap": ((1, 2), (3, None)),
        "overlap": ((1, 3), (2, None)),
        "overlap of equal starts": ((1, 2), (1, None)),
        "two open ends": ((1, None), (2, None)),
        "no open end": ((1, 2), (2, 3)),
        "backwards": ((3, 2), (2, None)),
    }
    values = ", ".join(
        f"('{key}', {start}, {'null' if end is None else end})"
        for key, periods in versions.items()
        for start, end in periods
    )
    rows = f"(select * from values {values} as rows (key, valid_from, valid_to))"
    broken = show(
        f"{{% set rows %}}{rows}{{% endset %}} select * from ({{{{ test_continuous_versions(rows, 'key') }}}})"
    )
    assert {row["key"] for row in broken} == versions.keys() - {"continuous"}


def test_a_spelling_that_no_record_can_match_is_found(stack: Settings, show: Show) -> None:
    wrong = {"Kiosk", "tiktok ", " web", "web\t", "\nweb", "ÉCRAN", "İ", " ", ""}
    values = ", ".join(f"('{text}')" for text in sorted({*wrong, "kiosk", "tik tok", "écran"}))
    rows = f"(select * from values {values} as rows (spelling))"
    test = "{{ test_normal_spelling(rows, 'spelling') }}"
    found = show(f"{{% set rows %}}{rows}{{% endset %}} select hex(spelling) as code from ({test})")
    assert {bytes.fromhex(str(row["code"] or "")).decode() for row in found} == wrong


def test_a_combination_of_few_persons_is_found(stack: Settings, show: Show) -> None:
    """Bern has 3 customers in 2 households, Ulm one of each, and Rome has none."""
    values = "('Bern', 1, 1), ('Bern', 2, 1), ('Bern', 3, 2), ('Ulm', 4, 3), ('Ulm', null, null), ('Rome', null, null)"
    rows = f"(select * from values {values} as rows (city, customer, household))"

    def few(at_least: int, persons: list[str]) -> dict[str, int]:
        test = f"{{{{ test_min_persons(rows, {at_least}, ['city'], {persons}) }}}}"
        found = show(f"{{% set rows %}}{rows}{{% endset %}} select * from ({test})")
        return {row["city"]: row["persons"] for row in found}

    assert few(3, ["customer"]) == {"Ulm": 1}
    assert few(3, ["customer", "household"]) == {"Ulm": 1, "Bern": 2}
    assert few(1, ["customer"]) == {}


@pytest.mark.parametrize("seed", range(25))
def test_what_a_total_lacks_is_about_enough_persons(seed: int) -> None:
    """Cells with persons in common, of two totals: hidden are small ones and, if there are any, one more."""
    chance, threshold = random.Random(seed), 5
    persons = {
        (total, cell): frozenset(chance.sample(range(12), chance.choice((0, 1, 2, 4, 5, 6, 9))))
        for total in "ab"
        for cell in range(chance.randrange(1, 8))
    }
    # The macro alone: the one behind it reads the variable.
    text = (PROJECT_ROOT / "macros" / "is_suppressed.sql").read_text().partition("{# Var small_group_threshold")[0]
    macro = jinja2.Environment().from_string(text, {"small_group_threshold": lambda: threshold}).module.is_suppressed
    rows = [(*group, len(them)) for group, them in persons.items()]
    answers = []
    for _ in range(2):
        chance.shuffle(rows)
        values = ", ".join(f"('{total}', {cell}, {count})" for total, cell, count in rows)
        sql = f"select total, cell from (values {values}) as cells (total, cell, persons)"
        answers.append({*duckdb.sql(f"{sql} qualify {macro('persons', total='total', key='cell')}").fetchall()})
    [hidden, again] = answers
    assert hidden == again
    for total in "ab":
        cells = {group: them for group, them in persons.items() if group[0] == total}
        small = {group for group, them in cells.items() if len(them) < threshold}
        mine = hidden & cells.keys()
        assert small <= mine
        assert len(mine - small) == bool(small and cells.keys() - small)
        # Of a total whose cells are all hidden nothing is visible.
        if mine and mine != cells.keys():
            assert len(frozenset().union(*(cells[group] for group in mine))) >= threshold
