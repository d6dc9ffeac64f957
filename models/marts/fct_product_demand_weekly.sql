with order_lines as (

    select *
    from {{ ref('fct_order_lines') }}
    where
        is_event_time_valid
        and product_key is not null

),

final as (

    select
        -- keys
        ordered_week,
        channel_group,
        product_key,

        -- measures
        case when count(quantity) > 0 then try_sum(quantity) else 0 end as quantity,
        count(*) as line_count,
        count(distinct order_key) as order_count,
        count(distinct customer_key) as customer_count,
        coalesce(sum(net_price), 0) as revenue

    from order_lines
    group by
        ordered_week,
        channel_group,
        product_key

)

select * from final
