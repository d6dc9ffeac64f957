with final as (

    select
        -- key
        order_id,

        -- attributes
        confirmation_code,
        payment_method,

        -- money
        amount,

        -- masked
        customer_pseudonym,
        key_version,

        -- time
        paid_at

    from {{ ref('int_payments_masked') }}
    where not has_valid_confirmation_code

)

select * from final
