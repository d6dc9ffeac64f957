{% set order_of_events = [
    'paid_at',
    'kafka_timestamp',
    'kafka_partition',
    'kafka_offset',
] %}

{{ config(
    unique_key='order_id',
    keep='first',
    order_by=order_of_events,
    partition_by=['bucket(16, order_id)'],
    tblproperties=merge_on_read(),
) }}

with new_payments as (

    select *
    from {{ ref('stg_payments__payments') }}
    where {{ in_new_batches('payments', 'payments') }}

),

ranked as (

    select
        *,
        row_number() over (
            partition by order_id
            order by {{ order_of_events | join(', ') }}
        ) as rank_in_key
    from new_payments

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
