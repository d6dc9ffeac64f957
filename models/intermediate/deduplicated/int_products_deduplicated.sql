{% set order_of_events = [
    'kafka_timestamp',
    'kafka_partition',
    'kafka_offset',
] %}

{{ config(
    unique_key='product_id',
    keep='last',
    order_by=order_of_events,
    partition_by=['bucket(16, product_id)'],
    tblproperties=merge_on_read(),
) }}

with new_products as (

    select *
    from {{ ref('stg_shop__products') }}
    where {{ in_new_batches('shop', 'shiftleft_public_products') }}

),

ranked as (

    select
        *,
        row_number() over (
            partition by product_id
            order by {{ order_of_events | join(' desc, ') }} desc
        ) as rank_in_key
    from new_products

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
