{# A source table that Python makes, or no rows of the columns that its yml declares while it is missing. #}
{% macro source_or_empty(source_name, table_name) -%}
    {%- set table = source(source_name, table_name) -%}
    {%- if not execute or adapter.get_relation(table.database, table.schema, table.identifier) -%}
        {{ table }}
    {%- else -%}
        {%- set unique_id = ['source', project_name, source_name, table_name] | join('.') -%}
        (
            select
                {%- for column in graph.sources[unique_id].columns.values() %}
                cast(null as {{ column.data_type }}) as {{ column.name }}{{ ',' if not loop.last }}
                {%- endfor %}
            where false
        )
    {%- endif -%}
{%- endmacro %}
