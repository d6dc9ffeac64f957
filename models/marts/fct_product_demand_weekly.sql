with final as (

    select
        -- keys
        ordered_week,
        {{ week_start('min(ordered_at)') }} as week_start,
        channel_group,
        product_key,
        category,

        -- measures
        try_sum(quantity) as quantity,
        count(*) as line_count,
        count(distinct order_key) as order_count,
        count(distinct customer_key) as customer_count,
        count_if(line_amount is null) as unpriced_line_count,
        sum(line_amount) as order_value

    from {{ ref('fct_order_lines') }}
    where
        is_event_time_valid
        and product_key is not null
    group by
        ordered_week,
        channel_group,
        product_key,
        category

)

select * from final
