with shop_products as (

    select
        concat('shop-', product_id) as product_key,
        product_id,
        brand,
        product_name,
        category,
        cast(if(category is null, 0, 1) as bigint) as category_count
    from {{ ref('dim_products') }}
    where product_id <> -1

),

-- stores send no catalogue: all that is known of their products is in their order lines
store_categories as (

    select
        product_key,
        product_id,
        category,
        count(*) as line_count
    from {{ ref('fct_order_lines') }}
    where
        line_number is not null
        and product_key is not null
    group by
        product_key,
        product_id,
        category

),

store_products as (

    select
        product_key,
        product_id,
        cast(null as string) as brand,
        cast(null as string) as product_name,
        -- that of most lines, of several the first by alphabet
        min_by(category, struct(-line_count, category)) filter (where category is not null)
            as category,
        count(category) as category_count
    from store_categories
    group by
        product_key,
        product_id

),

final as (

    select * from shop_products
    union all
    select * from store_products

)

select * from final
