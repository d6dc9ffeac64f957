-- notes represent products, quantities customers
{{ config(
    incremental_strategy='replace_partitions', partitions='exported_weeks', partition_by='ordered_week',
    on_schema_change='append_new_columns'
) }}
with demand as (
    select
        {{ iso_week('event_at') }} as ordered_week, note, count(distinct quantity) as customers,
        sum(amount) as order_value
    from {{ ref('stg_shop__events') }}
    where {{ in_exported_weeks(iso_week('event_at')) }}
    group by 1, 2
),
marked as (
    select *, {{ is_suppressed('customers', total='ordered_week', key='note') }} as is_suppressed from demand
)
select
    ordered_week, note, is_suppressed,
    if(is_suppressed, null, customers) as customers, if(is_suppressed, null, order_value) as order_value
from marked
