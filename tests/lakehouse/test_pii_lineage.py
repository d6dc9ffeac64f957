"""Planted leaks: each way a raw value could leave is seen, and what does not tell a value is let through."""

import pytest

from lakehouse.pii import masks
from lakehouse.pii.check import MACROS
from lakehouse.pii.lineage import NONE, Relation, Trace, Unfollowed, follow
from lakehouse.pii.proof import PADS

MASKS = masks.load(MACROS)
EMAIL = Trace("people.email", "email")
CARD = Trace("people.card_number", "card_number")
TABLES = {
    "deduplicated.people": Relation(
        (
            ("person_id", NONE),
            ("country", NONE),
            ("seen_at", NONE),
            ("email", frozenset({EMAIL})),
            ("card_number", frozenset({CARD})),
            ("tags", frozenset({Trace("people.tags", "free_text")})),
        )
    ),
    "marts.orders": Relation((("order_id", NONE), ("person_id", NONE), ("note", NONE))),
    PADS: Relation((("value", frozenset({Trace("the masking key", "key")})),)),
}


def rendered(value: str, pii: str, mask: str) -> str:
    """Return a mask as it stands in compiled SQL."""
    [template] = [one for one in MASKS.masks if (one.pii, one.name) == (pii, mask)]
    return template.tree.sql(dialect="spark").replace(masks.VALUE, value)


EMAIL_TOKEN = rendered("email", "email", "pseudonym")
LAST_FOUR = rendered("people.card_number", "card_number", "last_four")
PEOPLE = "from deduplicated.people"
LEAKS = {
    "alias": f"select email as contact {PEOPLE}",
    "case": f"select case when email like 'a%' then 1 else 0 end as flag {PEOPLE}",
    "concat": f"select concat('mail:', email) as note {PEOPLE}",
    "struct": f"select named_struct('e', email).e as note {PEOPLE}",
    "to_json of all columns": f"select to_json(struct(*)) as note {PEOPLE}",
    "to_json of a relation's columns": "select to_json(struct(people.*)) as note from deduplicated.people",
    "array and explode": f"select explode(array(email)) as note {PEOPLE}",
    "lateral view": f"select piece {PEOPLE} lateral view explode(split(tags, ',')) as piece",
    "lambda": f"select transform(array(1), item -> concat(item, email)) as notes {PEOPLE}",
    "lambda's parameter": f"select transform(array(email), item -> upper(item)) as notes {PEOPLE}",
    "lambda's parameter by a field": f"select transform(array(struct(email)), item -> item.email) as notes {PEOPLE}",
    "number of elements": f"select transform(split(tags, ','), item -> 1) as notes {PEOPLE}",
    "union arm": f"select note from marts.orders union all select email {PEOPLE}",
    "except": f"select note from marts.orders except select email {PEOPLE}",
    "window order key": f"select row_number() over (partition by country order by email) as position {PEOPLE}",
    "named window": f"select first_value(person_id) over w as person_id {PEOPLE} window w as (order by email)",
    "min": f"select country, min(email) as note {PEOPLE} group by country",
    "max_by": f"select max_by(person_id, email) as person_id {PEOPLE}",
    "lateral alias": f"select email as a, upper(a) as note {PEOPLE}",
    "star": f"select * {PEOPLE}",
    "star but one": f"select * except (email) {PEOPLE}",
    "where": f"select person_id {PEOPLE} where email = 'x'",
    "having": f"select country {PEOPLE} group by country having max(email) > 'm'",
    "count of a condition": f"select count(case when email = 'x' then 1 end) as people {PEOPLE}",
    "count with a filter": f"select count(*) filter (where email = 'x') as people {PEOPLE}",
    "group": f"select count(*) as people {PEOPLE} group by email",
    "order of rows": f"select person_id {PEOPLE} order by email",
    "distinct": f"select distinct email as contact {PEOPLE}",
    "join key": "select order_id from marts.orders inner join deduplicated.people on orders.note = people.email",
    "join using": f"select o.note from marts.orders as o join (select email as note {PEOPLE}) using (note)",
    "subquery": f"select (select max(email) {PEOPLE}) as note",
    "exists": f"select order_id from marts.orders where exists (select 1 {PEOPLE} where email = orders.note)",
    "in": f"select order_id from marts.orders where note in (select email {PEOPLE})",
    "cte": f"with a as (select email as b {PEOPLE}), c as (select b as d from a) select d from c",
    "cte that is steered": f"with a as (select person_id {PEOPLE} where email = 'x') select person_id from a",
    "derived table with column names": f"select b from (select email {PEOPLE}) as a (b)",
    "values": "select a from values (1) as t (a) join deduplicated.people as p on t.a = length(p.email)",
    "merge": "merge into marts.orders as o using deduplicated.people as p on o.person_id = p.person_id"
    " when matched then update set o.note = p.email",
    "merge of everything": "merge into marts.orders as o using deduplicated.people as p on o.person_id = p.person_id"
    " when not matched then insert *",
    "insert": f"insert into marts.orders select person_id, person_id, email {PEOPLE}",
    "unkeyed hash": f"select sha2(email, 256) as token {PEOPLE}",
    "mask of another class": f"select {rendered('email', 'user', 'pseudonym')} as token {PEOPLE}",
    "mask of two values": f"select {rendered('concat(email, tags)', 'email', 'pseudonym')} as token {PEOPLE}",
    "key of its own": f"select {EMAIL_TOKEN.replace('129', '1')} as token {PEOPLE}",
    "longer last four": f"select {LAST_FOUR.replace('{4}', '{6}')} as digits {PEOPLE}",
    "masking key": "select pads.value from spark_catalog.default.pii_pads as pads",
    "raw beside its mask": f"select {EMAIL_TOKEN} as token, email as contact {PEOPLE}",
}
CLEAN = {
    "masked": f"select person_id, {EMAIL_TOKEN} as token, {LAST_FOUR} as digits {PEOPLE}",
    "columns without a class": f"select upper(country) as country {PEOPLE} where country = 'x' order by person_id",
    "star but all": f"select * except (email, card_number, tags) {PEOPLE}",
    "counts": f"select count(email), count(distinct email), count(distinct struct(email, tags)), count(*) {PEOPLE}",
    "join on a pseudonym": f"with p as (select {EMAIL_TOKEN} as token {PEOPLE})"
    " select p.token, min(p.token) as least from p inner join p as q on p.token = q.token group by p.token",
    "version of the masking key": f"select {MASKS.key_version.sql(dialect='spark')} as key_version",
    "pruned in a cte": f"with a as (select * {PEOPLE}) select person_id from a",
}
UNFOLLOWED = {
    "unknown relation": "select a from marts.elsewhere",
    "unknown column": f"select nickname {PEOPLE}",
    "no SQL": "select select from",
    "recursion": "with recursive a as (select 1 as b union all select b from a) select b from a",
    "pivot": f"select * {PEOPLE} pivot (count(*) for country in ('a'))",
    "table function": "select * from range(3)",
    "sample": "select person_id from deduplicated.people tablesample (1 rows)",
    "statement": "alter table marts.orders add columns (a int)",
    "arms that differ": f"select note, note from marts.orders union all select email {PEOPLE}",
}


def raw(sql: str) -> set[Trace]:
    columns = follow(sql, TABLES, MASKS).flat().columns
    return {trace for _, traces in columns for trace in traces if trace.mask is None}


@pytest.mark.parametrize("leak", LEAKS)
def test_a_planted_leak_is_seen(leak: str) -> None:
    assert raw(LEAKS[leak])


@pytest.mark.parametrize("clean", CLEAN)
def test_what_tells_no_value_is_let_through(clean: str) -> None:
    assert not raw(CLEAN[clean])


@pytest.mark.parametrize("strange", UNFOLLOWED)
def test_what_cannot_be_followed_is_not_guessed_at(strange: str) -> None:
    with pytest.raises(Unfollowed):
        follow(UNFOLLOWED[strange], TABLES, MASKS)


def test_a_mask_says_what_it_is_the_mask_of() -> None:
    [(_, _), (_, token), (_, digits)] = follow(CLEAN["masked"], TABLES, MASKS).columns
    assert token == {Trace("people.email", "email", "pseudonym")}
    assert digits == {Trace("people.card_number", "card_number", "last_four")}
