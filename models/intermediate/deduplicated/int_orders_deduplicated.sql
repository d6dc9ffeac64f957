{% set change_columns = [
    'kafka_offset',
    'customer_id',
    'order_status',
    'channel_spelling',
    'ordered_at',
    'is_event_time_valid',
    'is_deleted',
    'kafka_timestamp',
    'ingested_at',
] %}
{{ config(
    unique_key='order_id',
    incremental_strategy='latest_change',
    change_columns=change_columns,
    partition_by='bucket(16, order_id)',
) }}

-- of each partition the last change, at the greatest time of the key there
with changes as (

    select
        order_id,
        kafka_generation,
        kafka_partition,
        max(kafka_timestamp) as monotone_timestamp,
        min(kafka_timestamp) as first_seen_at,
        max({{ struct_of(change_columns) }}) as last_change,
        max(ingest_batch) as ingest_batch
    from {{ ref('stg_shop__orders') }}
    where
        {{ in_new_batches() }}
        and order_id is not null
    group by order_id, kafka_generation, kafka_partition

),

by_key as (

    select
        order_id,
        array_sort(
            collect_list(struct(kafka_generation, monotone_timestamp, kafka_partition, last_change))
        ) as last_changes,
        min(first_seen_at) as first_seen_at,
        max(ingest_batch) as ingest_batch
    from changes
    group by order_id

),

latest as (

    select
        *,
        array_max(last_changes) as latest
    from by_key

),

final as (

    select
        order_id,
        latest.last_change.{{ change_columns | join(',\n        latest.last_change.') }},
        latest.monotone_timestamp,
        first_seen_at,
        latest.kafka_generation,
        latest.kafka_partition,
        ingest_batch,
        array_except(last_changes, array(latest)) as other_partitions

    from latest

)

select * from final
