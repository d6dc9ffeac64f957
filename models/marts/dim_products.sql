with products as (

    select *
    from {{ ref('int_products_versions') }}
    where valid_to is null

),

order_items as (

    select product_id
    from {{ ref('int_order_items_deduplicated') }}
    where product_id is not null

),

-- every number that a fact can have, so that no join loses one
members as (

    select product_id from products
    union
    select product_id from order_items
    union
    select cast(-1 as bigint) as product_id

),

final as (

    select
        -- key
        members.product_id,

        -- attributes
        products.brand,
        products.product_name,
        products.category,
        products.description,
        products.color,
        products.size,
        products.stock,

        -- money
        products.price,

        -- change
        coalesce(products.is_deleted, false) as is_deleted,
        products.valid_from as changed_at

    from members
    left join products
        on members.product_id = products.product_id

)

select * from final
