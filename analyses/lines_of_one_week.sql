-- exports are partitioned by week: only the files of this one are read
with order_lines as (

    select
        channel_group,
        line_amount
    from {{ ref('exp_weekly__order_lines') }}
    where ordered_week = '{{ last_exported_week() }}'

),

final as (

    select
        channel_group,
        count(*) as line_count,
        sum(line_amount) as gross_order_value
    from order_lines
    group by channel_group

)

select * from final
order by channel_group
