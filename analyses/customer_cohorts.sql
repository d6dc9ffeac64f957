with customer_weeks as (

    select
        customer_key,
        {{ week_start('first_ordered_at') }} as week_start
    from {{ ref('fct_customer_activity_weekly') }}

),

cohorts as (

    select
        customer_key,
        week_start,
        min(week_start) over (partition by customer_key) as cohort_week_start
    from customer_weeks

),

active as (

    select
        cohort_week_start,
        datediff(week_start, cohort_week_start) div 7 as weeks_since,
        count(distinct customer_key) as customer_count
    from cohorts
    group by
        cohort_week_start,
        weeks_since

),

final as (

    select
        cohort_week_start,
        weeks_since,
        customer_count,
        customer_count / first_value(customer_count) over (
            partition by cohort_week_start
            order by weeks_since
        ) as active_share
    from active

)

select * from final
order by
    cohort_week_start,
    weeks_since
