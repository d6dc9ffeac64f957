{{ config(partition_by='paid_week') }}

with completed_orders as (

    select *
    from {{ ref('fct_completed_orders') }}
    where {{ in_exported_weeks('paid_week') }}

),

final as (

    select
        paid_week,
        paid_at,

        order_id,
        ordered_at,
        order_status,

        confirmation_code,
        payment_method,
        amount,

        payer_pseudonym,
        key_version

    from completed_orders

)

select * from final
