with payments as (

    select
        order_id,
        customer_id,
        confirmation_code,
        payment_method,
        amount,
        paid_at,
        has_absurd_time,
        kafka_timestamp,
        ingest_batch,
        ingested_at
    from {{ ref('int_payments_deduplicated') }}

),

final as (

    select
        -- key
        order_id,

        -- attributes
        confirmation_code,
        coalesce(confirmation_code rlike '^[A-Z0-9]{8}\\z', false)
            as has_valid_confirmation_code,
        payment_method,

        -- money
        amount,

        -- masked
        {{ masked('stg_payments__payments', 'customer_id') }} as customer_pseudonym,
        {{ pii_key_version() }} as key_version,

        -- time
        paid_at,
        has_absurd_time,
        {{ counted_at('paid_at', 'ingested_at', 'payments') }} as counted_at,
        ingest_batch,
        ingested_at

    from payments

)

select * from final
