"""What staging selects of a field."""

import pytest

from python_dev.scaffold.columns import StagingColumn
from python_dev.scaffold.schema import SourceField


@pytest.mark.parametrize(
    ("path", "name", "selected"),
    [
        ("quantity", "quantity", "quantity"),
        ("Quantity", "quantity", "quantity"),
        ("orderId", "order_id", "orderid as order_id"),
        ("home.street", "home_street", "home.street as home_street"),
        ("Имя.street", "street", "`Имя`.street"),
        ("Имя.home.street", "home_street", "`Имя`.home.street as home_street"),
        ("group", "group_value", "`group` as group_value"),
    ],
)
def test_no_column_is_aliased_by_its_own_name(path: str, name: str, selected: str) -> None:
    column = StagingColumn(SourceField(path, "long", is_optional=False), name, "none", "Text.", frozenset())
    assert column.selected(is_key=False) == selected
