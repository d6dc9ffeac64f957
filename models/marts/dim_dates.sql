with days as (

    select explode(
        sequence(date '{{ var("first_date") }}', date '{{ var("last_date") }}')
    ) as date_day

),

fiscal as (

    select
        date_day,
        {{ fiscal_date('date_day') }} as fiscal_date
    from days

),

final as (

    select
        -- key
        date_day,

        -- ISO week
        {{ iso_week('date_day') }} as iso_week,
        {{ week_start('date_day') }} as week_start,
        extract(dayofweek_iso from date_day) as iso_weekday,
        date_format(date_day, 'EEEE') as weekday_name,

        -- calendar year
        year(date_day) as calendar_year,
        quarter(date_day) as calendar_quarter,
        month(date_day) as calendar_month,

        -- fiscal year
        year(fiscal_date) as fiscal_year,
        month(fiscal_date) as fiscal_period

    from fiscal

)

select * from final
