-- exports are partitioned by week: only the files of this one are read
with final as (

    select
        'completed_orders' as dataset,
        count(*) as file_rows
    from {{ ref('exp_weekly__completed_orders') }}
    where paid_week = '{{ last_exported_week() }}'
    union all
    select
        'customer_activity' as dataset,
        count(*) as file_rows
    from {{ ref('exp_weekly__customer_activity') }}
    where ordered_week = '{{ last_exported_week() }}'
    union all
    select
        'order_lines' as dataset,
        count(*) as file_rows
    from {{ ref('exp_weekly__order_lines') }}
    where ordered_week = '{{ last_exported_week() }}'
    union all
    select
        'product_demand' as dataset,
        count(*) as file_rows
    from {{ ref('exp_weekly__product_demand') }}
    where ordered_week = '{{ last_exported_week() }}'
    union all
    select
        'product_sales' as dataset,
        count(*) as file_rows
    from {{ ref('exp_weekly__product_sales') }}
    where ordered_week = '{{ last_exported_week() }}'

)

select * from final
order by dataset
