{#
    A column that a later schema version added, NULL as long as no record with
    it has landed and the bronze table does not have it.
#}
{% macro column_or_null(system, table, column, data_type) -%}
    {%- set landed = adapter.get_columns_in_relation(source(system, table)) | map(attribute='name') | list -%}
    {{ column if column in landed else 'cast(null as ' ~ data_type ~ ')' }}
{%- endmacro %}
