with orders as (

    select
        channel,
        order_value,
        paid_amount,
        paid_at,
        hours_to_pay
    from {{ ref('fct_orders') }}
    where ordered_week = '{{ last_exported_week() }}'

),

final as (

    select
        channel,
        count(*) as order_count,
        count(paid_at) as paid_order_count,
        count(paid_at) / count(*) as paid_share,
        avg(hours_to_pay) as average_hours_to_pay,
        median(hours_to_pay) as median_hours_to_pay,
        sum(order_value) as gross_order_value,
        sum(paid_amount) as paid_amount
    from orders
    group by channel

)

select * from final
order by
    order_count desc,
    channel asc
