with product_sales as (

    select
        customer_id,
        order_id,
        total_amount
    from {{ ref('fct_product_sales') }}
    where
        customer_id is not null
        and has_plausible_time
        -- open at the start, closed at the as-of instant
        and ordered_at > {{ as_of() }} - interval 30 days
        and ordered_at <= {{ as_of() }}

),

final as (

    select
        -- key
        customer_id,

        -- measures
        cast(coalesce(sum(total_amount), 0) as decimal(18, 2)) as total_amount_30d,
        count(distinct order_id) as order_count_30d,

        -- time
        {{ as_of() }} as as_of

    from product_sales
    group by customer_id

)

select * from final
