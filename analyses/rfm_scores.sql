with customer_weeks as (

    select
        customer_key,
        order_count,
        order_value,
        last_ordered_at
    from {{ ref('fct_customer_activity_weekly') }}
    where ordered_week <= '{{ last_exported_week() }}'

),

customers as (

    select
        customer_key,
        max(last_ordered_at) as last_ordered_at,
        sum(order_count) as order_count,
        coalesce(sum(order_value), 0) as gross_order_value
    from customer_weeks
    group by customer_key

),

-- the key makes the order total, so that equal customers get the same scores in every run
final as (

    select
        customer_key,
        last_ordered_at,
        order_count,
        gross_order_value,
        ntile(5) over (order by last_ordered_at, customer_key) as recency_score,
        ntile(5) over (order by order_count, customer_key) as frequency_score,
        ntile(5) over (order by gross_order_value, customer_key) as monetary_score
    from customers

)

select * from final
order by
    recency_score + frequency_score + monetary_score desc,
    customer_key asc
