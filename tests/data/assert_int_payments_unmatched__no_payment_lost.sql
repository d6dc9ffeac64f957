{{ config(group='landed_data') }}

-- Every payment is a completed order or unmatched, once.
with sides as (

    select
        (select count(*) from {{ ref('int_payments_deduplicated') }}) as payments,
        (select count(*) from {{ ref('fct_completed_orders') }}) as completed,
        (select count(*) from {{ ref('int_payments_unmatched') }}) as unmatched,
        (
            select count(*)
            from {{ ref('fct_completed_orders') }} as completed_orders
            inner join {{ ref('int_payments_unmatched') }} as unmatched_payments
                on completed_orders.order_id = unmatched_payments.order_id
        ) as in_both

)

select *
from sides
where payments <> completed + unmatched or in_both > 0
