{{ config(
    unique_key='store_order_key',
    keep='first',
    order_by=['kafka_timestamp', 'kafka_partition', 'kafka_offset'],
    partition_by='bucket(16, store_order_key)',
) }}

with ranked as (

    select
        *,
        row_number() over (
            partition by store_order_key
            order by kafka_timestamp, kafka_partition, kafka_offset
        ) as rank_in_key
    from {{ ref('stg_storefront__store_orders') }}
    where
        {{ in_new_batches('storefront', 'pizza_orders') }}
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

        kafka_timestamp,
        kafka_partition,
        kafka_offset,
        ingest_batch,
        ingested_at

    from ranked
    where rank_in_key = 1

)

select * from final
