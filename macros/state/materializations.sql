{#
    The materializations of dbt and dbt-spark 1.11, but for nodes that are as their last success left them
    (macros/state/node_states.sql). That of incremental models is in macros/incremental/incremental.sql.
#}


{% materialization test, adapter='spark' %}
    {% if is_unchanged(sql) %}{{ return(unchanged(node_states().passed)) }}{% endif %}
    {{ return(dbt.materialization_test_default()) }}
{% endmaterialization %}


{% materialization table, adapter='spark' %}
    {{ return(unchanged() if is_unchanged(sql) else noted(dbt.materialization_table_spark)) }}
{% endmaterialization %}


{% materialization view, adapter='spark' %}
    {{ return(unchanged() if is_unchanged(sql) else noted(dbt.materialization_view_spark)) }}
{% endmaterialization %}


{% materialization snapshot, adapter='spark' %}
    {{ return(unchanged() if is_unchanged(sql) else noted(dbt.materialization_snapshot_spark)) }}
{% endmaterialization %}


{# dbt shows the rows of a seed's file at the end, whether it was loaded or not. #}
{% materialization seed, adapter='spark' %}
    {% set built = unchanged() if is_unchanged('') else noted(dbt.materialization_seed_default) %}
    {% do store_result('agate_table', load_result('main').response, load_agate_table()) %}
    {{ return(built) }}
{% endmaterialization %}


{# Run a materialization of dbt, and complete the note of its node. #}
{% macro noted(materialization) %}
    {% set built = materialization() %}
    {% do after_run() %}
    {% do return(built) %}
{% endmacro %}


{# The result of a node that is left as it is, without a statement: dbt opens no connection. #}
{% macro unchanged(table=none) %}
    {% call noop_statement('main', 'unchanged', 'SKIP', res=table) %}{% endcall %}
    {% set relation = load_cached_relation(this) if model.resource_type != 'test' %}
    {% do return({'relations': [relation] if relation else []}) %}
{% endmacro %}
