with order_lines as (

    select
        {{ iso_week('reporting_at') }} as reporting_week,
        case
            when not has_order then 'no order'
            when not is_event_time_valid then 'invalid time'
            when not has_product then 'no product'
            else 'no customer'
        end as reason
    from {{ ref('fct_order_lines_excluded') }}

),

final as (

    select
        reporting_week,
        reason,
        count(*) as line_count
    from order_lines
    group by
        reporting_week,
        reason

)

select * from final
order by
    reporting_week,
    reason
