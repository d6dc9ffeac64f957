{% set order_by = [
    'not is_event_time_valid', 'kafka_timestamp', 'kafka_generation', 'kafka_partition', 'kafka_offset'
] %}
{{ config(
    unique_key='store_order_key',
    incremental_strategy='earliest',
    order_by=order_by,
    partition_by='bucket(16, store_order_key)',
) }}

-- an invalid time is no time to be the earliest by
with ranked as (

    select
        *,
        {{ earliest_of('store_order_key', order_by) }} as rank_in_key
    from {{ ref('stg_storefront__store_orders') }}
    where
        {{ in_new_batches() }}
        and store_order_key is not null

),

final as (

    select
        store_order_key,
        store_id,
        store_order_id,

        coupon_code,
        business_date,
        order_status,
        order_lines,

        user_id,
        region_id,
        gender,
        registered_epoch_ms,

        ordered_at,
        is_event_time_valid,

        kafka_timestamp,
        kafka_generation,
        kafka_partition,
        kafka_offset,
        ingest_batch,
        ingested_at

    from ranked
    where rank_in_key = 1

)

select * from final
