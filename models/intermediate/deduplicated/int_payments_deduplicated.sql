{% set order_by = [
    'not is_event_time_valid', 'paid_at', 'kafka_timestamp', 'kafka_generation', 'kafka_partition', 'kafka_offset'
] %}
{{ config(
    unique_key='order_id',
    incremental_strategy='earliest',
    order_by=order_by,
    partition_by='bucket(16, order_id)',
) }}

-- an invalid time is no time to be the earliest by
with ranked as (

    select
        *,
        {{ earliest_of('order_id', order_by) }} as rank_in_key
    from {{ ref('stg_payments__payments') }}
    where
        {{ in_new_batches() }}
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
        is_event_time_valid,

        kafka_timestamp,
        kafka_generation,
        kafka_partition,
        kafka_offset,
        ingest_batch,
        ingested_at

    from ranked
    where rank_in_key = 1

)

select * from final
