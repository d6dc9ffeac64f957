{# dbt-spark drops a table and leaves its files, where no erasure finds what they hold of a person. Those of a forked
   table are production's (docs/fork.md). #}
{% macro spark__drop_relation(relation) %}
    {% set owns_files = relation.is_table and table_properties(relation).get('gc.enabled') != 'false' %}
    {% call statement('drop_relation', auto_begin=False) %}
        drop {{ relation.type }} if exists {{ relation }}{{ ' purge' if owns_files }}
    {% endcall %}
{% endmacro %}
