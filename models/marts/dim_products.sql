with products as (

    select *
    from {{ ref('int_products_versions') }}
    where
        valid_to is null
        and not is_deleted

),

final as (

    select
        -- key
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

        -- time
        valid_from as changed_at

    from products

)

select * from final
