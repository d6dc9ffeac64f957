with final as (

    select
        -- keys
        ordered_week,
        {{ week_start('min(ordered_at)') }} as week_start,
        customer_key,
        key_version,

        -- measures
        count(distinct order_key) as order_count,
        count(*) as line_count,
        try_sum(quantity) as quantity,
        count_if(line_amount is null) as unpriced_line_count,
        sum(line_amount) as order_value,

        -- time
        min(ordered_at) as first_ordered_at,
        max(ordered_at) as last_ordered_at

    from {{ ref('fct_order_lines') }}
    where
        is_event_time_valid
        and customer_key is not null
    group by
        ordered_week,
        customer_key,
        key_version

)

select * from final
