{% set order_of_events = [
    'kafka_timestamp',
    'kafka_partition',
    'kafka_offset',
] %}

{{ config(
    unique_key='order_id',
    keep='last',
    order_by=order_of_events,
    partition_by=['bucket(16, order_id)'],
    tblproperties=merge_on_read(),
) }}

with new_orders as (

    select *
    from {{ ref('stg_shop__orders') }}
    where {{ in_new_batches('shop', 'shiftleft_public_orders') }}

),

ranked as (

    select
        *,
        row_number() over (
            partition by order_id
            order by {{ order_of_events | join(' desc, ') }} desc
        ) as rank_in_key
    from new_orders

),

final as (

    select
        order_id,

        customer_id,

        order_status,
        channel,

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
