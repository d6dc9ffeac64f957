"""Planted leaks: each way a raw value could leave is seen, and what does not reveal a value is allowed."""

import pytest

from python_dbt.pii import masks
from python_dbt.pii.declared import PERSONS
from python_dbt.pii.flows import MASKING_KEY, NONE, Flow, Relation
from python_dbt.pii.lineage import follow
from python_dbt.pii.parse import UnsupportedSql
from python_dbt.pii.proof import PADS

MASKS = masks.load()
EMAIL = Flow("people.email", "email")
CARD = Flow("people.card_number", "card_number")
TABLES = {
    "deduplicated.people": Relation(
        (
            ("person_id", NONE),
            ("country", NONE),
            ("seen_at", NONE),
            ("email", frozenset({EMAIL})),
            ("card_number", frozenset({CARD})),
            ("tags", frozenset({Flow("people.tags", "free_text")})),
        )
    ),
    "marts.orders": Relation((("order_id", NONE), ("person_id", NONE), ("note", NONE))),
    PADS: Relation((("value", frozenset({MASKING_KEY})),)),
}


def rendered(value: str, pii: str, mask: str, source: str = "") -> str:
    """Return a mask as it is in compiled SQL."""
    [template] = [template for template in MASKS.masks if (template.pii, template.name) == (pii, mask)]
    return template.tree.sql(dialect="spark").replace(masks.VALUE, value).replace(masks.SOURCE, source)


EMAIL_TOKEN = rendered("email", "email", "pseudonym")
LAST_FOUR = rendered("people.card_number", "card_number", "last_four")
PEOPLE = "from deduplicated.people"
GUESSED = (
    f"(select person_id, guess, email as value {PEOPLE} inner join (select note as guess from marts.orders) on true"
    f" union all select person_id, guess, guess {PEOPLE} inner join (select note as guess from marts.orders) on true)"
)
"""Each person's value hooks each guess of it: they are one value where the guess is right."""
LEAKS = {
    "alias": f"select email as contact {PEOPLE}",
    "hint": f"select /*+ broadcast(people) */ email as contact {PEOPLE}",
    "to_json of all columns": f"select to_json(struct(*)) as note {PEOPLE}",
    "to_json of a relation's columns": "select to_json(struct(people.*)) as note from deduplicated.people",
    "lateral view": f"select piece {PEOPLE} lateral view explode(split(tags, ',')) as piece",
    "lambda": f"select transform(array(1), item -> concat(item, email)) as notes {PEOPLE}",
    "lambda's parameter": f"select transform(array(email), item -> upper(item)) as notes {PEOPLE}",
    "lambda's parameter by a field": f"select transform(array(struct(email)), item -> item.email) as notes {PEOPLE}",
    "number of elements": f"select transform(split(tags, ','), item -> 1) as notes {PEOPLE}",
    "union arm": f"select note from marts.orders union all select email {PEOPLE}",
    "except": f"select note from marts.orders except select email {PEOPLE}",
    "rows that except keeps": "select order_id from"
    f" (select note, order_id from marts.orders except select email, person_id {PEOPLE})",
    "filtered first arm": f"select person_id {PEOPLE} where email = 'x' union all select note from marts.orders",
    "filtered second arm": f"select note from marts.orders union all select person_id {PEOPLE} where email = 'x'",
    "named window": f"select first_value(person_id) over w as person_id {PEOPLE} window w as (order by email)",
    "lateral alias": f"select email as a, upper(a) as note {PEOPLE}",
    "star but one": f"select * except (email) {PEOPLE}",
    "having": f"select country {PEOPLE} group by country having max(email) > 'm'",
    "count of a condition": f"select count(case when email = 'x' then 1 end) as people {PEOPLE}",
    "group": f"select count(*) as people {PEOPLE} group by email",
    "order of rows": f"select person_id {PEOPLE} order by email",
    "distinct": f"select distinct email as contact {PEOPLE}",
    "join key": "select order_id from marts.orders inner join deduplicated.people on orders.note = people.email",
    "join using": f"select o.note from marts.orders as o join (select email as note {PEOPLE}) using (note)",
    "exists": f"select order_id from marts.orders where exists (select 1 {PEOPLE} where email = orders.note)",
    "in": f"select order_id from marts.orders where note in (select email {PEOPLE})",
    "cte": f"with a as (select email as b {PEOPLE}), c as (select b as d from a) select d from c",
    "cte that is steered": f"with a as (select person_id {PEOPLE} where email = 'x') select person_id from a",
    "derived table with column names": f"select b from (select email {PEOPLE}) as a (b)",
    "values": "select a from values (1) as t (a) join deduplicated.people as p on t.a = length(p.email)",
    "mask of another class": f"select {rendered('email', 'user', 'pseudonym')} as token {PEOPLE}",
    "another key": f"select {EMAIL_TOKEN.replace('129', '1')} as token {PEOPLE}",
    "longer last four": f"select {LAST_FOUR.replace('{4}', '{6}')} as digits {PEOPLE}",
    "masking key": "select pads.value from spark_catalog.default.pii_pads as pads",
    "mask of a shifted value": "select "
    + rendered("concat(repeat('0', 12), substring(card_number, 1, 4))", "card_number", "last_four")
    + f" as first_four {PEOPLE}",
    "mask of what a cte computed": f"with a as (select reverse(card_number) as card_number {PEOPLE}) select "
    + rendered("a.card_number", "card_number", "last_four")
    + " as digits from a",
    "mask of one arm that is computed": "with a as (select card_number as number from deduplicated.people union all"
    f" select left(card_number, 8) {PEOPLE}) select "
    + rendered("number", "card_number", "last_four")
    + " as digits from a",
    "mask of a subquery": "select "
    + rendered("(select max(card_number) from deduplicated.people)", "card_number", "last_four")
    + f" as digits {PEOPLE}",
    "mask of a column that is sorted by it": f"with a as (select card_number {PEOPLE} order by card_number limit 9)"
    f" select {rendered('card_number', 'card_number', 'last_four')} as digits from a",
    "mask of the key of a join": "with a as (select o.person_id, p.card_number from marts.orders as o"
    f" join (select person_id, card_number, card_number as note {PEOPLE}) as p using (note))"
    f" select {rendered('card_number', 'card_number', 'last_four')} as digits from a",
    "pseudonyms of every number": "select "
    + rendered("order_id", "card_number", "pseudonym")
    + " as token from marts.orders",
    "order by position": f"with a as (select person_id, email {PEOPLE} order by 2 limit 5) select person_id from a",
    "order by all": f"with a as (select person_id, email {PEOPLE} order by all limit 5) select person_id from a",
    "sort by position": f"with a as (select person_id, email {PEOPLE} sort by 2 limit 5) select person_id from a",
    "group by position": f"with a as (select count(*) as people, email {PEOPLE} group by 2) select people from a",
    "group by all": f"with a as (select count(*) as people, email {PEOPLE} group by all) select people from a",
    "subquery in limit": f"select order_id from marts.orders limit (select count(*) {PEOPLE} where email = 'x')",
    "unit of a function": f"select date_trunc(email, seen_at) as seen_at {PEOPLE}",
    "values of a subquery": "select (select max(col1) from values ((select max(email) from deduplicated.people)))"
    " as note from (select note as col1 from marts.orders)",
    "semi join": "select order_id from marts.orders as o left semi join deduplicated.people as p on o.note = p.email",
    "distinct count of a value and a guess": "select person_id, max(if(number = 1, guess, null)) as email from"
    f" (select person_id, guess, count(distinct value) as number from {GUESSED} group by person_id, guess)"
    " group by person_id",
    "distinct count of a value and generated guesses": "select person_id, max(if(number = 1, guess, null)) as email"
    " from (select person_id, guess, count(distinct value) as number from"
    f" (select person_id, guess, email as value {PEOPLE} lateral view explode(sequence(1, 156)) as guess union all"
    f" select person_id, guess, string(guess) as value {PEOPLE} lateral view explode(sequence(1, 156)) as guess)"
    " group by person_id, guess) group by person_id",
    "distinct count over pairs of persons": "select p.person_id, q.person_id as other from deduplicated.people as p"
    " inner join deduplicated.people as q on true group by p.person_id, q.person_id"
    " having count(distinct p.email) = count(distinct q.email)",
    "union with a guess, then a count": "select person_id, count(*) as number from"
    f" (select person_id, email {PEOPLE} union select person_id, 'x' {PEOPLE}) group by person_id",
    "distinct with a guess, then a count": "select person_id, count(*) as number from"
    f" (select distinct person_id, value from {GUESSED}) group by person_id",
    "distinct with a guess, then row numbers": "select person_id, row_number() over (partition by person_id order by"
    f" person_id) as number from (select distinct person_id, value from {GUESSED})",
    "pseudonyms of a value and a guess": f"select {EMAIL_TOKEN} as token from"
    f" (select email {PEOPLE} union all select 'x' as email)",
    "pseudonyms of a value or a guess": "select "
    + rendered("coalesce(email, 'x')", "email", "pseudonym")
    + f" as token {PEOPLE}",
    "raw hooks its mask": f"select {EMAIL_TOKEN} as token, email as contact {PEOPLE}",
}
CLEAN = {
    "masked": f"select person_id, {EMAIL_TOKEN} as token, {LAST_FOUR} as digits {PEOPLE}",
    "columns without a class": f"select upper(country) as country {PEOPLE} where country = 'x' order by person_id",
    "star but all": f"select * except (email, card_number, tags) {PEOPLE}",
    "counts": f"select count(email), count(distinct country), count(*) {PEOPLE}",
    "join on a pseudonym": f"with p as (select {EMAIL_TOKEN} as token {PEOPLE})"
    " select p.token, min(p.token) as least from p inner join p as q on p.token = q.token group by p.token",
    "version of the masking key": f"select {MASKS.key_version.sql(dialect='spark')} as key_version",
    "a column and a function of one name": "select year(seen_at) as year, size(split(country, ',')) as tags"
    " from (select seen_at, country, tags from deduplicated.people)",
    "group and order by position": f"select country, count(*) as people {PEOPLE} group by 1 order by 2 desc",
    "hint": f"select /*+ broadcast(people) */ person_id {PEOPLE}",
    "pruned in a cte": f"with a as (select * {PEOPLE}) select person_id from a",
}
UNSUPPORTED = {
    "unknown relation": "select a from marts.elsewhere",
    "unknown column": f"select nickname {PEOPLE}",
    "no SQL": "select select from",
    "natural join": "select order_id from marts.orders natural join (select email as note from deduplicated.people)",
    "unknown hint": f"select /*+ reveal(email) */ person_id {PEOPLE}",
    "name in a text": f"select identifier('email') as note {PEOPLE}",
    "relation in a text": "select email from identifier('deduplicated.people')",
    "name with a dot": "select order_id from `marts.orders`",
    "function of somebody's own": f"select greatest_mail(person_id) as note {PEOPLE}",
    "Java": "select reflect('java.nio.file.Files', 'readString', 'key') as note",
    "program": "select transform(order_id) using 'cat key' as (note) from marts.orders",
    "variable of the server": "select '${env:HOME}' as note",
    "parameter": f"select :email as note {PEOPLE}",
    "second statement": f"select order_id from marts.orders; select email {PEOPLE}",
    "pipe": "from deduplicated.people |> select email as note",
    "star but a column of one relation": "select * except (p.email, p.card_number, p.tags)"
    " from deduplicated.people as p join deduplicated.people as q on p.person_id = q.person_id",
    "generator without column names": "select (select max(col) from marts.orders lateral view"
    " explode(array(people.email)) as_is) as note from (select *, person_id as col from deduplicated.people) as people",
    "union by name": f"select note from marts.orders union all by name select email as note {PEOPLE}",
    "union by position of a star": f"with a as (select * from marts.orders union all select person_id, email, country"
    f" {PEOPLE}) select note from a",
    "column names by position of a star": "select a from (select * from deduplicated.people) as t (a, b, c, d, e, f)",
    "argument that the parser drops": f"select uuid(email) as note {PEOPLE}",
    "recursion": "with recursive a as (select 1 as b union all select b from a) select b from a",
    "pivot": f"select * {PEOPLE} pivot (count(*) for country in ('a'))",
    "table function": "select * from range(3)",
    "sample": "select person_id from deduplicated.people tablesample (1 rows)",
    "insert": f"insert into marts.orders select person_id, person_id, email {PEOPLE}",
    "arms that differ": f"select note, note from marts.orders union all select email {PEOPLE}",
}


def raw(sql: str) -> set[Flow]:
    columns = follow(sql, TABLES).flat().columns
    return {flow for _, flows in columns for flow in flows if flow.mask is None}


@pytest.mark.parametrize("leak", LEAKS)
def test_a_planted_leak_is_seen(leak: str) -> None:
    assert raw(LEAKS[leak])


@pytest.mark.parametrize("clean", CLEAN)
def test_what_shows_no_value_is_let_through(clean: str) -> None:
    assert not raw(CLEAN[clean])


@pytest.mark.parametrize("how", ["select distinct * from a", "select * from a union select * from a"])
def test_equal_rows_that_go_show_no_masked_value_but_a_raw_one(how: str) -> None:
    for value, classes in ((EMAIL_TOKEN, set()), ("email", {"email"})):
        counted = follow(f"with a as (select country, {value} as v {PEOPLE}) select count(*) as n from ({how})", TABLES)
        assert {flow.pii for flow in counted.flat().columns[0][1]} == classes


@pytest.mark.parametrize("strange", UNSUPPORTED)
def test_what_cannot_be_followed_is_not_guessed_at(strange: str) -> None:
    with pytest.raises(UnsupportedSql):
        follow(UNSUPPORTED[strange], TABLES)


def test_a_mask_names_what_it_is_the_mask_of() -> None:
    [(_, _), (_, token), (_, digits)] = follow(CLEAN["masked"], TABLES).columns
    assert token == {Flow("people.email", "email", "pseudonym")}
    assert digits == {Flow("people.card_number", "card_number", "last_four")}


@pytest.mark.parametrize("kind", PERSONS)
def test_a_pseudonym_of_another_source_passes(kind: str) -> None:
    person = Flow("trades.person_id", kind, source="brokerage")
    tables = {**TABLES, "deduplicated.trades": Relation((("person_id", frozenset({person})),))}

    def reaching(source: str) -> set[str | None]:
        sql = f"select {rendered('person_id', kind, 'pseudonym', source)} as token from deduplicated.trades"
        return {flow.mask for flow in dict(follow(sql, tables).columns)["token"] if flow.column == person.column}

    assert reaching("brokerage") == {"pseudonym"}
    assert reaching("storefront") == {None}


def test_equal_sql_of_other_relations_or_masks_is_not_followed() -> None:
    sql = f"select {LAST_FOUR} as v {PEOPLE}"
    assert not raw(sql)
    phone = Flow("people.phone", "phone")
    others = {"deduplicated.people": Relation((("card_number", frozenset({phone})),))}
    assert {flow.column for _, flows in follow(sql, others).columns for flow in flows} == {phone.column}
    mask = "{% macro mask_as(value, class, mask, source='') %}hash({{ value }}, '{{ class }} {{ mask }}'){% endmacro %}"
    with masks.rendered_by([mask]):
        assert {flow.column for flow in raw(sql)} == {CARD.column}
    assert not raw(sql)
