with payments as (

    select *
    from {{ ref('int_payments_masked') }}
    where has_valid_confirmation_code

),

orders as (

    select
        order_id,
        customer_id,
        order_status,
        ordered_at
    from {{ ref('int_orders_deduplicated') }}
    where not is_deleted

),

final as (

    select
        -- keys
        payments.order_id,
        orders.customer_id,

        -- attributes
        orders.order_status,
        payments.confirmation_code,
        payments.payment_method,

        -- measures
        payments.amount,

        -- masked
        payments.customer_pseudonym as payer_pseudonym,
        payments.key_version,

        -- time
        orders.ordered_at,
        payments.paid_at,
        {{ iso_week('payments.paid_at') }} as paid_week

    from payments
    inner join orders
        on payments.order_id = orders.order_id
        -- the 96 hours are inclusive at both ends
        and payments.paid_at >= orders.ordered_at
        and payments.paid_at <= orders.ordered_at + interval 96 hours

)

select * from final
