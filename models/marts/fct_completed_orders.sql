{{ config(
    materialized='incremental',
    unique_key='order_id',
    incremental_strategy='affected_keys',
    follows=['int_payments_masked', 'int_orders_deduplicated'],
    partition_by='truncate(7, paid_week)',
) }}

with affected as (

    {% call affected_keys() %}
    select order_id
    from {{ ref('int_payments_masked') }}
    where {{ changed_in(ref('int_payments_masked')) }}
    union
    select order_id
    from {{ ref('int_orders_deduplicated') }}
    where {{ changed_in(ref('int_orders_deduplicated')) }}
    {% endcall %}

),

payments as (

    select
        *,
        lower(payment_method) as spelling
    from {{ ref('int_payments_masked') }}
    where {{ in_affected('order_id') }}

),

payment_methods as (

    select
        spelling,
        payment_method
    from {{ ref('payment_methods') }}

),

orders as (

    select
        order_id,
        customer_id,
        order_status,
        is_deleted,
        ordered_at,
        first_seen_at
    from {{ ref('int_orders_deduplicated') }}
    where {{ in_affected('order_id') }}

),

final as (

    select
        -- keys
        payments.order_id,
        coalesce(orders.customer_id, -1) as customer_id,

        -- attributes
        orders.order_status,
        payments.confirmation_code,
        coalesce(payment_methods.payment_method, payments.spelling) as payment_method,

        -- measures
        payments.amount,

        -- masked
        payments.customer_pseudonym as payer_pseudonym,
        payments.key_version,

        -- time
        orders.ordered_at,
        payments.paid_at,
        payments.reporting_at,
        greatest(payments.kafka_timestamp, orders.first_seen_at) as known_at,
        payments.is_event_time_valid,
        {{ event_week('payments.paid_at', 'payments.is_event_time_valid') }} as paid_week

    from payments
    inner join orders
        on payments.order_id = orders.order_id
    left join payment_methods
        on payments.spelling = payment_methods.spelling
    where
        payments.has_valid_confirmation_code
        and not orders.is_deleted
        and {{ is_paid_in_time('payments.paid_at', 'orders.ordered_at') }}

)

select * from final
