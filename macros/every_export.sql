{# The caller's SELECT once per export model, as one UNION ALL. It gets the dataset, whether it suppresses small groups,
   the topics that its file comes from, and all that it comes from: them, unique ids of dbt's nodes, and itself. #}
{% macro every_export() %}
    {%- if not execute %}{{ return('') }}{% endif -%}
    {%- set selects = [] -%}
    {%- for node in graph.nodes.values() | sort(attribute='name') if node.config.meta.export -%}
        {%- set export = node.config.meta.export -%}
        {%- set dataset = node.name.partition('__')[2] -%}
        {%- set origins, topics = lineage_of(node.unique_id) + [dataset], [] -%}
        {%- for events in export.counts or [] -%}
            {%- do origins.append(['model', project_name, events.from] | join('.')) -%}
        {%- endfor -%}
        {%- for source in graph.sources.values() if source.unique_id in origins and source.config.meta.kafka -%}
            {%- do topics.append(source.config.meta.kafka.topic) -%}
        {%- endfor -%}
        {%- set has_small_groups = 'true' if export.suppressed else 'false' -%}
        {%- do selects.append(caller(dataset, has_small_groups, topics, origins + topics)) -%}
    {%- endfor -%}
    {#- a project without exports decides of none -#}
    {{ selects | join('\n    union all\n') if selects else caller('', 'false', [], []) ~ ' where false' }}
{%- endmacro %}
