with days as (

    select
        date_day,
        weekday_name
    from {{ ref('dim_dates') }}
    where iso_week = '{{ last_exported_week() }}'

),

order_lines as (

    select
        store_id,
        cast(ordered_at as date) as date_day
    from {{ ref('fct_order_lines') }}
    where store_id is not null

),

stores as (

    select distinct store_id
    from order_lines

),

store_days as (

    select
        stores.store_id,
        days.date_day,
        days.weekday_name
    from stores
    cross join days

),

final as (

    select
        store_days.store_id,
        store_days.date_day,
        store_days.weekday_name
    from store_days
    left anti join order_lines
        on
            store_days.store_id = order_lines.store_id
            and store_days.date_day = order_lines.date_day

)

select * from final
order by
    store_id,
    date_day
