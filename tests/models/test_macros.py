"""Macros alone: the week rule and the masking rule against Python's own calendar and HMAC, and keys of changes."""

import hmac
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pyhive import hive

from lakehouse.settings import Settings
from lakehouse.thrift import rows
from lakehouse.weeks import IsoWeek

Show = Callable[[str], list[dict]]


def test_sql_and_python_agree_on_every_week_edge_and_leap_day(stack: Settings, show: Show) -> None:
    mondays = [IsoWeek.parse("2019-W52").start + timedelta(weeks=number) for number in range(12 * 53)]
    leap_days = [datetime(year, 2, 29, tzinfo=UTC) for year in (2020, 2024, 2028)]
    edges = [*mondays, *leap_days, *(day + timedelta(days=1) for day in leap_days)]
    moments = sorted({moment for edge in edges for moment in (edge - timedelta(microseconds=1), edge)})
    values = ", ".join(f"(timestamp '{moment:%Y-%m-%d %H:%M:%S.%f}')" for moment in moments)
    weeks = show(f"select {{{{ iso_week('moment') }}}} as week from values {values} as edges (moment) order by moment")
    assert [row["week"] for row in weeks] == [str(IsoWeek.of(moment)) for moment in moments]


def test_the_exported_week_is_the_labelled_one_or_the_last_complete_one(stack: Settings, show: Show) -> None:
    [row] = show("select '{{ exported_week() }}' as label, '{{ monday(\"2026-W53\") }}' as monday")
    assert row == {"label": str(IsoWeek.last_complete(datetime.now(UTC))), "monday": "2026-12-28"}


def test_a_pseudonym_is_pythons_hmac(masking_key: Settings, show: Show) -> None:
    version, pads = masking_key.pii_key_file.read_text().strip().split(":")
    key = bytes(byte ^ 0x36 for byte in bytes.fromhex(pads[:128]))
    words = ["user_1", "", "Zoë | 東京 \U0001f355", "42"]
    values = ", ".join(f"({position}, '{word}')" for position, word in enumerate(words))
    rows = show(
        f"select {{{{ pseudonym('word', 'user') }}}} as token, {{{{ pii_key_version() }}}} as key_version "
        f"from values {values} as words (position, word) order by position"
    )
    expected = [hmac.new(key, f"user|{word}".encode(), "sha256").hexdigest() for word in words]
    assert [row["token"] for row in rows] == expected
    assert {row["key_version"] for row in rows} == {version}


def test_pseudonyms_keep_null_and_separate_classes(masking_key: Settings, show: Show) -> None:
    [row] = show(
        "select {{ pseudonym('cast(null as string)', 'user') }} as none, "
        "{{ pseudonym('42', 'user') }} as number, {{ pseudonym(\"'42'\", 'user') }} as text, "
        "{{ pseudonym('42', 'customer') }} as customer"
    )
    assert row["none"] is None
    assert row["number"] == row["text"]
    assert row["number"] != row["customer"]


def test_a_change_has_a_key_before_the_first_record_key_has_landed(
    small_project: Callable[[str], None], cursor: hive.Cursor, tmp_path: Path
) -> None:
    (tmp_path / "models" / "sources.yml").write_text(
        "sources: [{name: shop, schema: small, tables: [{name: changes}]}]"
    )
    model = "select {{ key_of_change('changes', 'id') }} as id from {{ source('shop', 'changes') }}"
    rows(cursor, "create schema if not exists small")
    rows(cursor, "create or replace table small.changes using iceberg as select 1 as id")
    small_project(model)
    assert rows(cursor, "select id from small.thing") == [(1,)]
    rows(cursor, "alter table small.changes add column kafka_key struct<id: int>")
    rows(cursor, "insert into small.changes values (null, named_struct('id', 2))")
    small_project(model)
    assert rows(cursor, "select id from small.thing order by id") == [(1,), (2,)]
    rows(cursor, "drop view small.thing")
    rows(cursor, "drop table small.changes")
