with order_lines as (

    select
        order_line_key,
        line_amount
    from {{ ref('fct_order_lines') }}
    where
        ordered_week = '{{ last_exported_week() }}'
        and order_line_key like 'shop-%'

),

product_sales as (

    select
        concat('shop-', order_item_id) as order_line_key,
        total_amount
    from {{ ref('fct_product_sales') }}
    where ordered_week = '{{ last_exported_week() }}'

),

completed_orders as (

    select
        ordered_at,
        amount
    from {{ ref('fct_completed_orders') }}
    where paid_week = '{{ last_exported_week() }}'

),

final as (

    select
        1 as step,
        'gross order value' as figure,
        count(*) as item_count,
        sum(line_amount) as amount
    from order_lines
    union all
    select
        2 as step,
        'less lines without a product name or a positive price' as figure,
        count(*) as item_count,
        sum(order_lines.line_amount) as amount
    from order_lines
    left anti join product_sales
        on order_lines.order_line_key = product_sales.order_line_key
    union all
    select
        3 as step,
        'product sales' as figure,
        count(*) as item_count,
        sum(total_amount) as amount
    from product_sales
    union all
    select
        4 as step,
        'paid for orders of the week' as figure,
        count(*) as item_count,
        sum(amount) as amount
    from completed_orders
    where {{ iso_week('ordered_at') }} = '{{ last_exported_week() }}'
    union all
    select
        5 as step,
        'paid for orders of the week before' as figure,
        count(*) as item_count,
        sum(amount) as amount
    from completed_orders
    where {{ iso_week('ordered_at') }} <> '{{ last_exported_week() }}'

)

select * from final
order by step
