{# The caller's SELECT once per Iceberg table of the project, as one UNION ALL: bronze, seeds, snapshots and other
   models that are no views. It gets the table. A missing table is skipped. #}
{% macro every_stored_table() %}
    {%- if not execute %}{{ return('') }}{% endif -%}
    {%- set selects = [] -%}
    {%- for node in (graph.sources.values() | list) + (graph.nodes.values() | list)
        if node.resource_type in ('source', 'model', 'seed', 'snapshot') and node.unique_id != model.unique_id -%}
        {%- set table = adapter.get_relation(node.database, node.schema, node.alias or node.identifier) -%}
        {%- if table and table.is_table %}{% do selects.append(caller(table)) %}{% endif -%}
    {%- endfor -%}
    {{ selects | sort | join('\n    union all\n') }}
{%- endmacro %}
