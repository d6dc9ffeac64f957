with order_lines as (

    select *
    from {{ ref('fct_order_lines') }}
    where has_plausible_time

),

final as (

    select
        -- keys
        ordered_week,
        channel_group,
        product_key,

        -- measures
        coalesce(sum(quantity), 0) as quantity,
        count(*) as line_count,
        count(distinct order_key) as order_count,
        count(distinct customer_key) as customer_count,
        cast(coalesce(sum(net_price), 0) as decimal(18, 2)) as revenue

    from order_lines
    group by
        ordered_week,
        channel_group,
        product_key

)

select * from final
