{{ config(
    unique_key='batch_id',
    incremental_strategy='earliest',
    order_by=['batch_id'],
    full_refresh=false,
) }}

with snapshots as (

    {% call(topic, table, is_new) every_bronze_table() %}
    select
        '{{ topic }}' as topic,
        *
    from (
        select
            cast(summary['lakehouse.batch'] as bigint) as ingest_batch,
            summary['lakehouse.ranges'] as ranges,
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

landed as (

    {% call(topic, table, is_new) every_bronze_table() %}
    select
        '{{ topic }}' as topic,
        ingest_batch,
        kafka_partition,
        min(kafka_offset) as first_offset,
        max(kafka_offset) as last_offset,
        count(*) as landed_rows,
        count_if(decode_error is not null and not startswith(decode_error, 'erased: ')) as dead_letters,
        sort_array(collect_set(value_schema_id)) as schema_ids,
        min(ingested_at) as ingested_at
    from {{ table }}
    where {{ is_new }}
    group by ingest_batch, kafka_partition
    {% endcall %}

),

ranges_read as (

    select
        topic,
        ingest_batch,
        cast(partition as int) as kafka_partition,
        bounds[0] as from_offset,
        bounds[1] as until_offset
    from snapshots
        lateral view
        explode(from_json(ranges, 'map<string, array<bigint>>')) as partition, bounds

),

-- A range of transaction markers has no row; a replay has no range, nor has a batch whose
-- snapshot expired.
partitions as (

    select
        coalesce(ranges_read.topic, landed.topic) as topic,
        coalesce(ranges_read.ingest_batch, landed.ingest_batch) as batch,
        coalesce(ranges_read.kafka_partition, landed.kafka_partition) as kafka_partition,
        coalesce(ranges_read.from_offset, landed.first_offset) as from_offset,
        coalesce(ranges_read.until_offset, landed.last_offset + 1) as until_offset,
        coalesce(landed.landed_rows, 0) as landed_rows,
        coalesce(landed.dead_letters, 0) as dead_letters,
        coalesce(landed.schema_ids, cast(array() as array<int>)) as schema_ids,
        landed.ingested_at
    from ranges_read
    full outer join landed
        on
            ranges_read.topic = landed.topic
            and ranges_read.ingest_batch = landed.ingest_batch
            and ranges_read.kafka_partition = landed.kafka_partition

),

final as (

    select
        -- keys
        concat_ws('/', partitions.topic, partitions.kafka_partition, partitions.batch) as batch_id,
        partitions.topic,
        partitions.kafka_partition,
        partitions.batch,

        -- range
        partitions.from_offset,
        partitions.until_offset,

        -- figures
        partitions.landed_rows,
        partitions.dead_letters,
        partitions.schema_ids,

        -- commit
        snapshots.ranges = '{}' as is_replay,
        snapshots.snapshot_id,
        snapshots.writer,
        coalesce(snapshots.committed_at, partitions.ingested_at) as committed_at

    from partitions
    left join snapshots
        on
            partitions.topic = snapshots.topic
            and partitions.batch = snapshots.ingest_batch

)

select * from final
