{{ config(
    unique_key='customer_id',
    keep='last',
    order_by=['kafka_timestamp', 'kafka_partition', 'kafka_offset'],
    partition_by='bucket(16, customer_id)',
) }}

with ranked as (

    select
        *,
        row_number() over (
            partition by customer_id
            order by kafka_timestamp desc, kafka_partition desc, kafka_offset desc
        ) as rank_in_key
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
