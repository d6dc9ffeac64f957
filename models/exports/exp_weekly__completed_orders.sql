{{ config(partition_by='paid_week') }}

with final as (

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

    from {{ ref('fct_completed_orders') }}
    where {{ in_exported_weeks('paid_week') }}

)

select * from final
