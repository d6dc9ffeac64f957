{{ config(
    unique_key='order_id',
    keep='first',
    order_by=['paid_at', 'kafka_timestamp', 'kafka_partition', 'kafka_offset'],
    partition_by='bucket(16, order_id)',
) }}

with ranked as (

    select
        *,
        row_number() over (
            partition by order_id
            order by paid_at, kafka_timestamp, kafka_partition, kafka_offset
        ) as rank_in_key
    from {{ ref('stg_payments__payments') }}
    where
        {{ in_new_batches('payments', 'payments') }}
        and order_id is not null

),

final as (

    select
        order_id,
        product_id,
        customer_id,

        confirmation_code,
        payment_method,

        amount,

        card_number,
        card_expiration,

        paid_at,

        kafka_timestamp,
        kafka_partition,
        kafka_offset,
        ingest_batch,
        ingested_at

    from ranked
    where rank_in_key = 1

)

select * from final
