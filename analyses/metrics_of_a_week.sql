with order_lines as (

    select *
    from {{ ref('fct_order_lines') }}
    where ordered_week = '{{ last_exported_week() }}'

),

product_sales as (

    select *
    from {{ ref('fct_product_sales') }}
    where ordered_week = '{{ last_exported_week() }}'

),

completed_orders as (

    select *
    from {{ ref('fct_completed_orders') }}
    where paid_week = '{{ last_exported_week() }}'

),

trades as (

    select *
    from {{ ref('fct_trades') }}
    where traded_week = '{{ last_exported_week() }}'

),

of_lines as (

    select
        count(distinct order_key) as orders,
        count(*) as order_lines,
        try_sum(quantity) as pieces,
        count(distinct customer_key) as active_customers,
        sum(line_amount) as gross_order_value,
        sum(line_amount) / count(distinct order_key) as average_order_value
    from order_lines

),

of_sales as (

    select sum(total_amount) as product_sales
    from product_sales

),

of_payments as (

    select
        count(*) as completed_orders,
        sum(amount) as paid_amount
    from completed_orders

),

of_trades as (

    select sum(total_price) as traded_value
    from trades

),

final as (

    select
        of_lines.orders,
        of_lines.order_lines,
        of_lines.pieces,
        of_lines.active_customers,
        of_lines.gross_order_value,
        of_lines.average_order_value,
        of_sales.product_sales,
        of_payments.completed_orders,
        of_payments.paid_amount,
        of_trades.traded_value
    from of_lines
    cross join of_sales
    cross join of_payments
    cross join of_trades

)

select * from final
