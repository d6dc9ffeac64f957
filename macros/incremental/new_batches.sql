{#
    The predicate that limits a bronze table to the batches a model has not
    read yet: to all that have landed on a first run or full refresh.

    The bounds are literals read from file statistics, no scan. The upper one
    matters because Spark may evaluate the slice twice while a new batch lands;
    the comment tells the materialization to note it in the model's table.
    A batch is read again when none of its rows won: harmless, MERGE replaces a
    row only by a better one. The day of ingestion prunes manifests.
#}
{% macro in_new_batches(system, table) %}
    {%- if not execute or model.resource_type == 'unit_test' -%}
        true
    {%- else -%}
        {%- set bronze = source(system, table) -%}
        {%- set read = newest_batch(this) if is_incremental() else 0 -%}
        ingest_batch > {{ read }} and ingest_batch <= {{ newest_batch(bronze) }} /* of {{ table }} */
        {%- if is_incremental() -%}
            {%- set day = run_query(
                'select cast(date(min(readable_metrics.ingested_at.lower_bound)) as string)'
                ~ ' from ' ~ bronze ~ '.files where content = 0'
                ~ ' and readable_metrics.ingest_batch.upper_bound > ' ~ read
            ).rows[0][0] %}
        and ingested_at >= timestamp '{{ day or '9999-12-31' }} 00:00:00'
        {%- endif -%}
    {%- endif -%}
{% endmacro %}


{# Until which batch a table was filled by in_new_batches(), as noted in its
   properties; none if nothing is noted. #}
{% macro filled_until(table) %}
    {% if execute %}
        {% for row in run_query('show tblproperties ' ~ table).rows if row[0].startswith('lakehouse.read-until.') %}
            {% do return(row[1]) %}
        {% endfor %}
    {% endif %}
{% endmacro %}
