{#
    dbt-spark 1.11 returns raw `describe` rows here: snapshots with
    hard_deletes then write rows in which every business column is NULL.
#}
{% macro spark__get_columns_in_relation(relation) %}
    {% do return(adapter.get_columns_in_relation(relation)) %}
{% endmacro %}
