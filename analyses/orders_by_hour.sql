with order_lines as (

    select
        order_key,
        channel_group,
        line_amount,
        ordered_at
    from {{ ref('fct_order_lines') }}
    where ordered_week = '{{ last_exported_week() }}'

),

final as (

    select
        date_trunc('hour', ordered_at) as ordered_hour,
        channel_group,
        count(distinct order_key) as order_count,
        sum(line_amount) as gross_order_value
    from order_lines
    group by
        ordered_hour,
        channel_group

)

select * from final
order by
    ordered_hour,
    channel_group
