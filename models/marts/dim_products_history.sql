with final as (

    select
        -- keys
        version_key,
        product_id,

        -- attributes
        brand,
        product_name,
        category,
        description,
        color,
        size,
        stock,

        -- money
        price,

        -- version
        is_deleted,
        is_first_version,
        valid_to is null and not is_deleted as is_current,
        valid_from,
        valid_to

    from {{ ref('int_products_versions') }}

)

select * from final
