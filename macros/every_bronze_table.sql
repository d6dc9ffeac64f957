{#
    The caller's SELECT once per landed topic, as one UNION ALL. It is given
    the topic, its bronze table, and which batches are new to this model, as
    "between x and y": the upper bound keeps two reads of a table alike while
    a batch lands.

    Which topics there are is read from the sources' config.meta.kafka, as the
    ingester does, so there is no second list. A topic that has not landed a
    record has no table yet and is left out.
#}
{% macro every_bronze_table() %}
    {%- if not execute %}{{ return('') }}{% endif -%}
    {%- set tables = {} -%}
    {%- set newest = [] -%}
    {%- for node in graph.sources.values() | sort(attribute='unique_id') if node.config.meta.kafka -%}
        {%- set table = adapter.get_relation(node.database, node.schema, node.identifier) -%}
        {%- if table -%}
            {%- do tables.update({node.config.meta.kafka.topic: table}) -%}
            {%- do newest.append(
                "select '" ~ node.config.meta.kafka.topic ~ "', max(readable_metrics.ingest_batch.upper_bound)"
                ~ ' from ' ~ table ~ '.files'
            ) -%}
        {%- endif -%}
    {%- endfor -%}
    {%- if not tables -%}
        {%- do exceptions.raise_compiler_error('No topic has landed a record yet. Run `lakehouse ingest run` first.') -%}
    {%- endif -%}
    {%- set recorded = {} -%}
    {%- if is_incremental() -%}
        {%- for row in run_query('select topic, max(batch) from ' ~ this ~ ' group by topic').rows -%}
            {%- do recorded.update({row[0]: row[1]}) -%}
        {%- endfor -%}
    {%- endif -%}
    {%- set selects = [] -%}
    {%- for row in run_query(newest | join(' union all ')).rows -%}
        {%- set new = 'between ' ~ (recorded.get(row[0], 0) + 1) ~ ' and ' ~ (row[1] or 0) -%}
        {%- do selects.append(caller(row[0], tables[row[0]], new)) -%}
    {%- endfor -%}
    {{ selects | sort | join('\n    union all\n') }}
{%- endmacro %}
