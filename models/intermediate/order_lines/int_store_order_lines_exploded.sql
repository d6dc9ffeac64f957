with exploded as (

    select
        *,
        posexplode(order_lines) as (position, order_line)
    from {{ ref('int_store_orders_masked') }}

),

final as (

    select
        -- keys
        concat('store-', store_order_key, '-', position + 1) as order_line_key,
        concat('store-', store_order_key) as order_key,
        position + 1 as line_number,

        -- attributes
        'store' as channel_spelling,
        store_id,
        region_id,
        coupon_code,
        concat('store-', order_line.product_id) as product_key,
        order_line.product_id,
        order_line.category,

        -- measures
        order_line.quantity,
        order_line.unit_price,
        order_line.line_amount,
        order_line.is_price_overflow,

        -- masked
        concat('store-', customer_pseudonym) as customer_key,
        key_version,

        -- time
        ordered_at,
        is_event_time_valid,
        -- its time is Kafka's: there is no other one to count it by
        if(is_event_time_valid, ordered_at, ingested_at) as reporting_at,
        ingested_at

    from exploded

)

select * from final
