with customer_weeks as (

    select
        ordered_week,
        customer_key,
        order_value,
        min(ordered_week) over (partition by customer_key) as first_week
    from {{ ref('fct_customer_activity_weekly') }}

),

final as (

    select
        ordered_week,
        count_if(ordered_week = first_week) as new_customer_count,
        count_if(ordered_week > first_week) as returning_customer_count,
        sum(order_value) filter (where ordered_week = first_week) as new_gross_order_value,
        sum(order_value) filter (where ordered_week > first_week) as returning_gross_order_value
    from customer_weeks
    group by ordered_week

)

select * from final
order by ordered_week
