with completed_orders as (

    select
        coalesce(payment_method, 'unknown') as payment_method,
        amount
    from {{ ref('fct_completed_orders') }}
    where paid_week = '{{ last_exported_week() }}'

),

payment_methods as (

    select
        payment_method,
        count(*) as payment_count,
        sum(amount) as paid_amount
    from completed_orders
    group by payment_method

),

final as (

    select
        payment_method,
        payment_count,
        paid_amount,
        try_divide(paid_amount, sum(paid_amount) over ()) as paid_share
    from payment_methods

)

select * from final
order by
    paid_amount desc nulls last,
    payment_method asc
