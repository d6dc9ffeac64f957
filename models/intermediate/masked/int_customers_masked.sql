with final as (

    select
        -- keys
        version_key,
        customer_id,

        -- attributes
        segment,
        shipping_address_id,
        billing_address_id,

        -- masked
        {{ masked('stg_shop__customers', 'customer_name', as='initials') }} as customer_name_masked,
        {{ masked('stg_shop__customers', 'email', as='pseudonym') }} as email_pseudonym,
        {{ pii_key_version() }} as key_version,

        -- change
        is_deleted,
        is_first_version,
        valid_from,
        valid_to,

        -- position
        ingest_batch

    from {{ ref('int_customers_versions') }}

)

select * from final
