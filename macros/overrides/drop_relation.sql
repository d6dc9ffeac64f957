{# dbt-spark drops a table and leaves its files, where no erasure finds what they hold of a person. #}
{% macro spark__drop_relation(relation) %}
    {% call statement('drop_relation', auto_begin=False) %}
        drop {{ relation.type }} if exists {{ relation }}{{ ' purge' if relation.is_table }}
    {% endcall %}
{% endmacro %}
