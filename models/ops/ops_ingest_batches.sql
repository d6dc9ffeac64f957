{{ config(
    unique_key='batch_id',
    incremental_strategy='earliest',
    follows='sources',
    order_by=['batch_id'],
    full_refresh=false,
    on_schema_change='append_new_columns',
) }}

with commits as (

    select * from {{ ref('ops_commits') }}

),

offsets_read as (

    select
        topic,
        batch,
        cast(partition as int) as kafka_partition,
        bounds[0] as from_offset,
        bounds[1] as until_offset
    from commits
        lateral view explode(ranges) as partition, bounds

),

landed as (

    {% call(topic, table, is_new) every_bronze_table() %}
    select
        '{{ topic }}' as topic,
        ingest_batch as batch,
        kafka_partition,
        min(kafka_offset) as from_offset,
        max(kafka_offset) + 1 as until_offset,
        count(*) as landed_rows,
        count_if(decode_error is not null and not startswith(decode_error, 'erased: ')) as dead_letters,
        sort_array(collect_set(value_schema_id)) as schema_ids,
        min(ingested_at) as ingested_at
    from {{ table }}
    where {{ is_new }}
    group by ingest_batch, kafka_partition
    {% endcall %}

),

-- A range of transaction markers has no row; a replay has no range, nor has a batch whose
-- snapshot expired.
partitions as (

    select
        coalesce(offsets_read.topic, landed.topic) as topic,
        coalesce(offsets_read.batch, landed.batch) as batch,
        coalesce(offsets_read.kafka_partition, landed.kafka_partition) as kafka_partition,
        coalesce(offsets_read.from_offset, landed.from_offset) as from_offset,
        coalesce(offsets_read.until_offset, landed.until_offset) as until_offset,
        coalesce(landed.landed_rows, 0) as landed_rows,
        coalesce(landed.dead_letters, 0) as dead_letters,
        coalesce(landed.schema_ids, cast(array() as array<int>)) as schema_ids,
        landed.ingested_at
    from offsets_read
    full outer join landed
        on
            offsets_read.topic = landed.topic
            and offsets_read.batch = landed.batch
            and offsets_read.kafka_partition = landed.kafka_partition

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
        size(commits.ranges) = 0 as is_replay,
        commits.snapshot_id,
        commits.writer,
        coalesce(commits.committed_at, partitions.ingested_at) as committed_at

    from partitions
    left join commits
        on
            partitions.topic = commits.topic
            and partitions.batch = commits.batch

)

select * from final
