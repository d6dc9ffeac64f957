with store_orders as (

    select
        concat('store-', store_order_key) as order_key,
        'store' as spelling,
        order_status,
        concat('store-', customer_pseudonym) as customer_key,
        key_version,
        ordered_at,
        is_event_time_valid
    from {{ ref('int_store_orders_masked') }}

),

shop_orders as (

    select
        concat('shop-', order_id) as order_key,
        lower(channel_spelling) as spelling,
        order_status,
        concat('shop-', customer_id) as customer_key,
        cast(null as string) as key_version,
        ordered_at,
        is_event_time_valid
    from {{ ref('int_orders_deduplicated') }}
    where not is_deleted

),

orders as (

    select * from store_orders
    union all
    select * from shop_orders

),

order_lines as (

    select
        order_key,
        count(*) as line_count,
        count_if(line_amount is null) as unpriced_line_count,
        try_sum(quantity) as quantity,
        sum(line_amount) as order_value
    from {{ ref('fct_order_lines') }}
    group by order_key

),

completed_orders as (

    select
        concat('shop-', order_id) as order_key,
        payment_method,
        amount,
        paid_at
    from {{ ref('fct_completed_orders') }}

),

channels as (

    select
        spelling,
        channel,
        channel_group
    from {{ ref('channels') }}

),

final as (

    select
        -- key
        orders.order_key,

        -- channel
        coalesce(channels.channel, orders.spelling) as channel,
        coalesce(channels.channel_group, 'Other') as channel_group,

        -- attributes
        orders.order_status,
        completed_orders.payment_method,

        -- measures
        coalesce(order_lines.line_count, 0) as line_count,
        coalesce(order_lines.unpriced_line_count, 0) as unpriced_line_count,
        order_lines.quantity,
        order_lines.order_value,
        completed_orders.amount as paid_amount,
        cast(
            (unix_millis(completed_orders.paid_at) - unix_millis(orders.ordered_at)) / 3600000
            as decimal(5, 2)
        ) as hours_to_pay,

        -- masked
        orders.customer_key,
        orders.key_version,

        -- time
        orders.ordered_at,
        completed_orders.paid_at,
        orders.is_event_time_valid,
        {{ event_week('orders.ordered_at', 'orders.is_event_time_valid') }} as ordered_week

    from orders
    left join order_lines
        on orders.order_key = order_lines.order_key
    left join completed_orders
        on orders.order_key = completed_orders.order_key
    left join channels
        on orders.spelling = channels.spelling

)

select * from final
