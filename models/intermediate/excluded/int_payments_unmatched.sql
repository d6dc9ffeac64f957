with payments as (

    select
        order_id,
        has_valid_confirmation_code,
        amount,
        paid_at,
        reporting_at,
        is_event_time_valid
    from {{ ref('int_payments_masked') }}

),

orders as (

    select
        order_id,
        is_deleted,
        ordered_at
    from {{ ref('int_orders_deduplicated') }}

),

-- the first reason that applies; none for a payment that completes its order
compared as (

    select
        payments.order_id,
        payments.amount,
        payments.paid_at,
        payments.reporting_at,
        payments.is_event_time_valid,
        orders.ordered_at,
        case
            when not payments.has_valid_confirmation_code then 'bad code'
            when orders.order_id is null then 'no order'
            when orders.is_deleted then 'order deleted'
            when payments.paid_at is null or orders.ordered_at is null then 'no time'
            when {{ is_paid_in_time('payments.paid_at', 'orders.ordered_at') }} then null
            else 'outside 96 hours'
        end as unmatched_reason
    from payments
    left join orders
        on payments.order_id = orders.order_id

),

final as (

    select
        -- key
        order_id,

        -- attributes
        unmatched_reason,

        -- money
        amount,

        -- time
        ordered_at,
        paid_at,
        reporting_at,
        {{ event_week('paid_at') }} as paid_week

    from compared
    where unmatched_reason is not null

)

select * from final
