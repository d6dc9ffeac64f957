with final as (

    select
        -- keys
        store_order_key,
        store_id,
        store_order_id,

        -- attributes
        coupon_code,
        business_date,
        order_status,
        region_id,
        order_lines,

        -- masked
        {{ masked('stg_storefront__store_orders', 'user_id', as='pseudonym') }}
            as customer_pseudonym,
        {{ pii_key_version() }} as key_version,

        -- time
        ordered_at,
        is_event_time_valid,
        ingest_batch,
        ingested_at

    from {{ ref('int_store_orders_deduplicated') }}

)

select * from final
