with final as (

    select
        -- keys
        version_key,
        customer_id,

        -- attributes
        segment,

        -- masked
        customer_name_masked,
        email_pseudonym,
        key_version,

        -- version
        is_deleted,
        is_first_version,
        valid_to is null and not is_deleted as is_current,
        valid_from,
        valid_to

    from {{ ref('int_customers_masked') }}

)

select * from final
