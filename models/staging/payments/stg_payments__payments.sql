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
        order_id,
        product_id,
        customer_id,

        -- attributes
        confirmation_code,
        {{ column_or_null('payments', 'payments', 'payment_method', 'string') }} as payment_method,

        -- money
        try_cast(amount as decimal(12, 2)) as amount,

        -- card
        cc_number as card_number,
        expiration as card_expiration,

        -- time
        ts as paid_at,

        -- position
        kafka_timestamp,
        kafka_partition,
        kafka_offset,
        ingest_batch,
        ingested_at

    from landed

)

select * from final
