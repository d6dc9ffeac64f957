with landed as (

    select *
    from {{ source('payments', 'payments') }}
    where
        decode_error is null
        and kafka_raw_value is not null

),

final as (

    select
        -- keys
        try_cast(order_id as bigint) as order_id,
        try_cast(product_id as bigint) as product_id,
        try_cast(customer_id as bigint) as customer_id,

        -- attributes: the code is checked as it was sent
        confirmation_code,
        {{ clean_text('payment_method') }} as payment_method,

        -- money
        try_cast(amount as decimal(28, 2)) as amount,
        amount is not null and try_cast(amount as decimal(28, 2)) is null as is_amount_overflow,

        -- card
        cc_number as card_number,
        expiration as card_expiration,

        -- time
        ts as paid_at,
        {{ is_event_time_valid('ts') }} as is_event_time_valid,

        -- position
        kafka_timestamp,
        coalesce(kafka_generation, 0) as kafka_generation,
        kafka_partition,
        kafka_offset,
        ingest_batch,
        ingested_at

    from landed

)

select * from final
