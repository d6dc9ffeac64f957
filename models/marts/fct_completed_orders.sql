{{ config(
    materialized='incremental',
    unique_key='order_id',
    incremental_strategy='affected_keys',
    partition_by='bucket(16, order_id)',
) }}

with affected as (

    select order_id
    from {{ ref('int_payments_masked') }}
    where {{ changed_in(ref('int_payments_masked')) }}
    union
    select order_id
    from {{ ref('int_orders_deduplicated') }}
    where {{ changed_in(ref('int_orders_deduplicated')) }}

),

payments as (

    select *
    from {{ ref('int_payments_masked') }}
    where
        has_valid_confirmation_code
        and {{ in_affected('order_id') }}

),

orders as (

    select
        order_id,
        customer_id,
        order_status,
        ordered_at,
        first_seen_at
    from {{ ref('int_orders_deduplicated') }}
    where
        not is_deleted
        and {{ in_affected('order_id') }}

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
        payments.counted_at,
        greatest(payments.kafka_timestamp, orders.first_seen_at) as known_at,
        payments.is_event_time_valid,
        {{ event_week('payments.paid_at', 'payments.is_event_time_valid') }} as paid_week

    from payments
    inner join orders
        on
            payments.order_id = orders.order_id
            and {{ is_paid_in_time('payments.paid_at', 'orders.ordered_at') }}

)

select * from final
