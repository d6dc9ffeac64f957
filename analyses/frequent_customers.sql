with customer_weeks as (

    select
        customer_key,
        order_count,
        order_value,
        last_ordered_at
    from {{ ref('fct_customer_activity_weekly') }}

),

final as (

    select
        customer_key,
        sum(order_count) as order_count,
        sum(order_value) as gross_order_value,
        max(last_ordered_at) as last_ordered_at
    from customer_weeks
    group by customer_key
    having sum(order_count) > 5

)

select * from final
order by
    order_count desc,
    customer_key asc
