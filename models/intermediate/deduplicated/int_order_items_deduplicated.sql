{% set order_by = ['kafka_timestamp', 'kafka_partition', 'kafka_offset'] %}
{{ config(
    unique_key='order_item_id',
    incremental_strategy='latest',
    order_by=order_by,
    partition_by='bucket(16, order_item_id)',
) }}

with ranked as (

    select
        *,
        {{ latest_of('order_item_id', order_by) }} as rank_in_key
    from {{ ref('stg_shop__order_items') }}
    where
        {{ in_new_batches('shop', 'shiftleft_public_order_items') }}
        and order_item_id is not null

),

final as (

    select
        order_item_id,

        order_id,
        product_id,

        quantity,

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
