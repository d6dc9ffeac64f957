{% set order_by = ['kafka_timestamp', 'kafka_partition', 'kafka_offset'] %}
{{ config(
    unique_key='product_id',
    incremental_strategy='latest',
    order_by=order_by,
    partition_by='bucket(16, product_id)',
) }}

with ranked as (

    select
        *,
        {{ latest_of('product_id', order_by) }} as rank_in_key
    from {{ ref('stg_shop__products') }}
    where
        {{ in_new_batches('shop', 'shiftleft_public_products') }}
        and product_id is not null

),

final as (

    select
        product_id,

        brand,
        product_name,
        category,
        description,
        color,
        size,
        stock,

        price,

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
