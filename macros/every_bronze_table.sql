{#
    The caller's SELECT once per landed topic, as one UNION ALL. It is given
    the topic, its bronze table, and the predicate for the batches that are new
    to this model: its upper bound keeps two reads of a table alike while a
    batch lands, its comment tells the materialization how far the model reads.

    Which topics there are is read from the sources' config.meta.kafka, as the
    ingester does, so there is no second list. Before the first `ingest run` a
    topic has no table and is left out.
#}
{% macro every_bronze_table() %}
    {%- if not execute %}{{ return('') }}{% endif -%}
    {%- set selects = [] -%}
    {%- for node in graph.sources.values() | sort(attribute='unique_id') if node.config.meta.kafka -%}
        {%- set table = adapter.get_relation(node.database, node.schema, node.identifier) -%}
        {%- if table -%}
            {%- do selects.append(caller(node.config.meta.kafka.topic, table, changed_in(table))) -%}
        {%- endif -%}
    {%- endfor -%}
    {%- if not selects -%}
        {%- do exceptions.raise_compiler_error('There is no bronze table yet. Run `lakehouse ingest run` first.') -%}
    {%- endif -%}
    {{ selects | join('\n    union all\n') }}
{%- endmacro %}
