{# The caller's SELECT once per export model, as one UNION ALL. It gets the dataset, whether it suppresses small groups,
   and what its file comes from: names of topics, unique ids of dbt's nodes, and itself. #}
{% macro every_export() %}
    {%- if not execute %}{{ return('') }}{% endif -%}
    {%- set selects = [] -%}
    {%- for node in graph.nodes.values() | sort(attribute='name') if node.config.meta.export -%}
        {%- set export = node.config.meta.export -%}
        {%- set dataset = node.name.partition('__')[2] -%}
        {%- set origins = lineage_of(node.unique_id) + [dataset] -%}
        {%- for events in (export.quarantined or []) + (export.late or []) -%}
            {%- do origins.append(['model', project_name, events.from] | join('.')) -%}
        {%- endfor -%}
        {%- for source in graph.sources.values() if source.unique_id in origins and source.config.meta.kafka -%}
            {%- do origins.append(source.config.meta.kafka.topic) -%}
        {%- endfor -%}
        {%- set has_small_groups = 'true' if export.suppressed else 'false' -%}
        {%- do selects.append(caller(dataset, has_small_groups, origins)) -%}
    {%- endfor -%}
    {{ selects | join('\n    union all\n') }}
{%- endmacro %}
