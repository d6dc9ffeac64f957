{#
    The caller's SELECT once per landed topic, as one UNION ALL. It gets the topic, its bronze table, and the
    predicate that a batch is new to this model. The topics are those of the sources' config.meta.kafka, as for the
    ingester. Before the first `ingest run` a topic has no table and is skipped.
#}
{% macro every_bronze_table() %}
    {%- if not execute %}{{ return('') }}{% endif -%}
    {%- set selects = [] -%}
    {%- for node in graph.sources.values() | sort(attribute='unique_id') if node.config.meta.kafka -%}
        {%- if node.unique_id not in lineage_of(model.unique_id) -%}
            {%- do exceptions.raise_compiler_error(
                'The topic ' ~ node.config.meta.kafka.topic ~ ' is missing in the list of macros/topics.sql. Add it.'
            ) -%}
        {%- endif -%}
        {%- set table = adapter.get_relation(node.database, node.schema, node.identifier) -%}
        {%- if table -%}
            {%- do selects.append(caller(node.config.meta.kafka.topic, table, changed_in(table))) -%}
        {%- endif -%}
    {%- endfor -%}
    {%- if not selects -%}
        {%- do exceptions.raise_compiler_error('No topic has a bronze table. Run `lakehouse ingest run` first.') -%}
    {%- endif -%}
    {{ selects | join('\n    union all\n') }}
{%- endmacro %}
