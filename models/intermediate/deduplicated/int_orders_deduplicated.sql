{% set order_by = ['kafka_timestamp', 'kafka_partition', 'kafka_offset'] %}
{{ config(
    unique_key='order_id',
    incremental_strategy='latest',
    order_by=order_by,
    partition_by='bucket(16, order_id)',
) }}

with ranked as (

    select
        *,
        {{ latest_of('order_id', order_by) }} as rank_in_key
    from {{ ref('stg_shop__orders') }}
    where
        {{ in_new_batches('shop', 'shiftleft_public_orders') }}
        and order_id is not null

),

final as (

    select
        order_id,

        customer_id,

        order_status,
        channel_spelling,

        ordered_at,

        is_deleted,

        kafka_timestamp,
        kafka_partition,
        kafka_offset,
        ingest_batch,
        ingested_at

    from ranked
    where rank_in_key = 1

)

select * from final
