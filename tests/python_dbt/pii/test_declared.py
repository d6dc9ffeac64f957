"""Quasi-identifiers: each export column that one reaches by value declares it, however many models lie between."""

from typing import Any

import pytest

from python_dbt.manifest import Column, DbtManifest, Node
from python_dbt.pii.declared import unlabelled_quasi_identifiers

PEOPLE = "from marts.people"
BY_VALUE = {
    "carried": f"select city as place {PEOPLE}",
    "computed": f"select upper(trim(city)) as place {PEOPLE}",
    "one of two": f"select coalesce(nickname, city) as place {PEOPLE}",
    "condition": f"select if(city = 'x', 1, 0) as place {PEOPLE}",
    "greatest": f"select max(city) as place {PEOPLE} group by person_id",
    "cte": f"with towns as (select city as town {PEOPLE}) select town as place from towns",
    "union": f"select nickname as place {PEOPLE} union all select city {PEOPLE}",
    "seed": "select town as place from reference.towns",
    "star": f"select * except (person_id, nickname, city), city as place {PEOPLE}",
}
NOT_BY_VALUE = {
    "another column": f"select nickname as place {PEOPLE}",
    "number of rows": f"select count(*) as place {PEOPLE}",
    "which rows": f"select nickname as place {PEOPLE} where city = 'x'",
    "order": f"select nickname as place {PEOPLE} order by city",
    "join": f"select one.nickname as place {PEOPLE} as one inner join marts.people as other on one.city = other.city",
    "groups": f"select count(*) as place {PEOPLE} group by city",
}


def node(schema: str, name: str, sql: str, reads: str, columns: dict[str, Any], **meta: Any) -> Node:
    described = {column: Column(meta=labels) for column, labels in columns.items()}
    return Node(
        name,
        "model",
        name,
        schema,
        alias=name,
        compiled_code=sql,
        columns=described,
        parents=[reads, "towns"],
        meta=meta,
    )


def issues(sql: str, **of_place: Any) -> list[str]:
    """Return the messages over an export of one SQL; `city` of the staging model and `town` of the seed are quasi."""
    columns = {"person_id": {"pii": "none"}, "nickname": {"pii": "none"}, "city": {"pii": "none", "quasi": True}}
    nodes = [
        node("exports", "exp_weekly__people", sql, "people", {"place": of_place}, export={"key": ["place"]}),
        node("marts", "people", "select person_id, nickname, city from staging.stg_people", "stg_people", {}),
        node("staging", "stg_people", "select 1", "none", columns),
        Node("towns", "seed", "towns", "reference", alias="towns", columns={"town": Column(meta={"quasi": True})}),
    ]
    manifest = DbtManifest({node.unique_id: node for node in nodes})
    return [issue.message for issue in unlabelled_quasi_identifiers(manifest)]


@pytest.mark.parametrize("way", BY_VALUE)
def test_a_quasi_identifier_is_exported_undeclared(way: str) -> None:
    source = "towns.town" if way == "seed" else "stg_people.city"
    expected = f"exp_weekly__people.place holds {source}, a quasi-identifier, which its yml does not declare"
    assert issues(BY_VALUE[way]) == [expected]
    assert issues(BY_VALUE[way], quasi=True) == []


@pytest.mark.parametrize("way", NOT_BY_VALUE)
def test_a_quasi_identifier_of_rows_is_taken_for_a_column(way: str) -> None:
    assert issues(NOT_BY_VALUE[way]) == []
