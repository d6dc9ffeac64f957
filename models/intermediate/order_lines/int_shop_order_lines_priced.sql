with final as (

    select
        -- keys
        concat('shop-', order_item_id) as order_line_key,
        concat('shop-', order_id) as order_key,
        order_item_id,
        cast(null as int) as line_number,

        -- attributes
        channel_spelling,
        cast(null as bigint) as store_id,
        cast(null as string) as region_id,
        cast(null as bigint) as coupon_code,
        concat('shop-', product_id) as product_key,
        product_id,
        category,

        -- measures
        quantity,
        price as unit_price,
        try_cast(try_multiply(quantity, price) as decimal(28, 2)) as line_amount,

        -- masked
        concat('shop-', customer_id) as customer_key,
        cast(null as string) as key_version,

        -- time
        ordered_at,
        is_event_time_valid

    from {{ ref('int_order_items_priced') }}
    where has_order

)

select * from final
