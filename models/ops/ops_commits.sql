{{ config(materialized='ephemeral', follows='sources') }}

-- Read by name where a topic has landed; dbt learns here which topics there are.
{% call(topic) every_topic() %}
-- depends_on: {{ source(topic.source, topic.table) }}
{% endcall %}

with commits as (

    {% call(topic, table, is_new) every_bronze_table() %}
    select
        '{{ topic }}' as topic,
        *
    from (
        select
            cast(summary['lakehouse.batch'] as bigint) as ingest_batch,
            from_json(summary['lakehouse.ranges'], 'map<string, array<bigint>>') as ranges,
            summary['lakehouse.writer'] as writer,
            snapshot_id,
            committed_at
        from {{ table }}.snapshots
        -- a replay that another batch overtook may have had that one's number
        where snapshot_id in (select snapshot_id from {{ table }}.history where is_current_ancestor)
    )
    where {{ is_new }}
    {% endcall %}

),

final as (

    select
        -- keys
        topic,
        ingest_batch as batch,

        -- attributes
        ranges,
        snapshot_id,
        writer,

        -- time
        committed_at

    from commits

)

select * from final
