{{ config(group='landed_data') }}

-- A payment is quarantined exactly if its code is not eight capitals or digits: checked here in
-- other words.
with payments as (

    select
        order_id,
        coalesce(
            length(confirmation_code) <> 8
            or translate(confirmation_code, 'ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789', '') <> '',
            true
        ) as has_bad_code
    from {{ ref('int_payments_deduplicated') }}

),

quarantined as (

    select order_id
    from {{ ref('int_payments_quarantined') }}

)

select coalesce(payments.order_id, quarantined.order_id) as order_id
from payments
full outer join quarantined
    on payments.order_id = quarantined.order_id
where coalesce(payments.has_bad_code, false) <> (quarantined.order_id is not null)
