with figures as (

    select
        customer_id,
        total_amount_30d,
        order_count_30d,
        as_of,
        max(as_of) over () as newest
    from {{ ref('fct_customers_rolling_30d') }}

),

final as (

    select
        customer_id,
        as_of,
        order_count_30d,
        total_amount_30d,
        total_amount_30d / order_count_30d as average_amount
    from figures
    where as_of = newest

)

select * from final
order by
    total_amount_30d desc nulls last,
    customer_id asc
