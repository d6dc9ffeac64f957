{{ config(materialized='view') }}

with order_lines as (

    select
        'order_lines' as dataset_name,
        ordered_week as week_label,
        count(*) as total_rows,
        sum(quantity) as quantity,
        cast(sum(net_price) as decimal(18, 2)) as money
    from {{ ref('fct_order_lines') }}
    group by ordered_week

),

completed_orders as (

    select
        'completed_orders' as dataset_name,
        paid_week as week_label,
        count(*) as total_rows,
        cast(null as bigint) as quantity,
        cast(sum(amount) as decimal(18, 2)) as money
    from {{ ref('fct_completed_orders') }}
    group by paid_week

),

product_sales as (

    select
        'product_sales' as dataset_name,
        ordered_week as week_label,
        count(*) as total_rows,
        sum(quantity) as quantity,
        cast(sum(total_amount) as decimal(18, 2)) as money
    from {{ ref('fct_product_sales') }}
    group by ordered_week

),

customer_activity as (

    select
        'customer_activity' as dataset_name,
        ordered_week as week_label,
        count(*) as total_rows,
        sum(quantity) as quantity,
        cast(sum(revenue) as decimal(18, 2)) as money
    from {{ ref('fct_customer_activity_weekly') }}
    group by ordered_week

),

figures as (

    select * from order_lines
    union all
    select * from completed_orders
    union all
    select * from product_sales
    union all
    select * from customer_activity

),

final as (

    select
        -- keys
        concat(dataset_name, '/', week_label) as figures_id,
        dataset_name,
        week_label,

        -- figures
        total_rows,
        quantity,
        money

    from figures
    -- the figures of a week that is not over change by nature
    where week_label <= '{{ last_complete_week() }}'

)

select * from final
