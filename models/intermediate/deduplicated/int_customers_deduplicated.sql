{% set order_of_events = [
    'kafka_timestamp',
    'kafka_partition',
    'kafka_offset',
] %}

{{ config(
    unique_key='customer_id',
    keep='last',
    order_by=order_of_events,
    partition_by=['bucket(16, customer_id)'],
    tblproperties=merge_on_read(),
) }}

with new_customers as (

    select *
    from {{ ref('stg_shop__customers') }}
    where {{ in_new_batches('shop', 'shiftleft_public_customers') }}

),

ranked as (

    select
        *,
        row_number() over (
            partition by customer_id
            order by {{ order_of_events | join(' desc, ') }} desc
        ) as rank_in_key
    from new_customers

),

final as (

    select
        customer_id,

        customer_name,
        email,

        segment,
        shipping_address_id,
        billing_address_id,

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
