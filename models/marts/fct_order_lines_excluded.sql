with lines as (

    select
        order_line_key,
        true as has_order,
        is_event_time_valid,
        customer_key is not null as has_customer,
        product_id is not null as has_product,
        reporting_at
    from {{ ref('int_store_order_lines_exploded') }}
    union all
    select
        concat('shop-', order_item_id) as order_line_key,
        has_order,
        is_event_time_valid,
        customer_id is not null as has_customer,
        product_id is not null as has_product,
        reporting_at
    from {{ ref('int_order_items_priced') }}

),

final as (

    select
        -- key
        order_line_key,

        -- what it lacks
        has_order,
        is_event_time_valid,
        has_customer,
        has_product,

        -- time
        reporting_at

    from lines
    where not (has_order and is_event_time_valid and has_customer and has_product)

)

select * from final
