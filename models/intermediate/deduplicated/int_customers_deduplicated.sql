{% set order_by = ['kafka_timestamp', 'kafka_partition', 'kafka_offset'] %}
{{ config(
    unique_key='customer_id',
    incremental_strategy='latest',
    order_by=order_by,
    partition_by='bucket(16, customer_id)',
) }}

with ranked as (

    select
        *,
        {{ latest_of('customer_id', order_by) }} as rank_in_key
    from {{ ref('stg_shop__customers') }}
    where
        {{ in_new_batches('shop', 'shiftleft_public_customers') }}
        and customer_id is not null

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
