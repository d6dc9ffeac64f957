{#
    The predicate that limits a bronze table to the batches a model has not
    read yet: true on a first run or full refresh.

    Both bounds are literals read from file statistics, no scan. The upper one
    matters because Spark may evaluate the slice twice while a new batch lands.
    A batch is read again when none of its rows won: harmless, MERGE replaces a
    row only by a better one. The day of ingestion prunes manifests.
#}
{% macro in_new_batches(system, table) %}
    {%- if not is_incremental() -%}
        true
    {%- else -%}
        {%- set read = newest_batch(this) -%}
        {%- set landed = run_query(
            'select coalesce(max(readable_metrics.ingest_batch.upper_bound), 0),'
            ~ ' cast(date(min(readable_metrics.ingested_at.lower_bound)) as string)'
            ~ ' from ' ~ source(system, table) ~ '.files where content = 0'
            ~ ' and readable_metrics.ingest_batch.upper_bound > ' ~ read
        ).rows[0] -%}
        ingest_batch > {{ read }} and ingest_batch <= {{ landed[0] }} /* of {{ table }} */
        and ingested_at >= timestamp '{{ landed[1] or '9999-12-31' }} 00:00:00'
    {%- endif -%}
{% endmacro %}
