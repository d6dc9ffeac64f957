with final as (

    select
        -- keys
        version_key,
        address_id,

        -- place
        city,
        state,
        country,

        -- masked
        {{ masked('stg_shop__addresses', 'postal_code', as='postal_area') }} as postal_area,

        -- change
        is_deleted,
        is_first_version,
        valid_from,
        valid_to,

        -- position
        ingest_batch

    from {{ ref('int_addresses_versions') }}

)

select * from final
