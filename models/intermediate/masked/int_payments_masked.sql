with final as (

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
        {{ masked('stg_payments__payments', 'customer_id', as='pseudonym') }} as customer_pseudonym,
        {{ pii_key_version() }} as key_version,

        -- time
        paid_at,
        is_event_time_valid,
        {{ reporting_at('paid_at', 'is_event_time_valid', 'payments') }} as reporting_at,
        kafka_timestamp,
        ingest_batch,
        ingested_at

    from {{ ref('int_payments_deduplicated') }} as payments

)

select * from final
