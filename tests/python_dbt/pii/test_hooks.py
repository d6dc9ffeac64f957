import pytest

from python_dbt.pii.hooks import jinja_names


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("select run_query from adapter where context = '{'", set()),
        ("{# run_query() #} {% raw %}{{ adapter }}{% endraw %}", set()),
        ("{{ adapter['execute']('load_result') }}", {"adapter"}),
        ("{{ dbt.run_query('x') | first }}", {"run_query"}),
        ("{%- call(row) every_row() -%}{% do statement('x') %}{% endcall %}", {"statement"}),
        ("{% data_test whole(model) %}{{ context.x }}{% enddata_test %}", {"context"}),
        ("{% materialization some, default %}{% set a = builtins %}{% endmaterialization %}", {"builtins"}),
        ("{% from 'x' import adapter as other %}", {"adapter"}),
        ("{{ 'not closed }} {{ run_query(1) }}", {"run_query"}),
    ],
)
def test_names_of_jinja_are_found_in_any_tag(text, names):
    senders = {"adapter", "builtins", "context", "load_result", "run_query", "statement"}
    assert jinja_names(text) & senders == names
