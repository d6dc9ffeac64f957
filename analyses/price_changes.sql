with versions as (

    select
        product_id,
        product_name,
        price,
        valid_from,
        lag(price) over (partition by product_id order by valid_from) as price_before
    from {{ ref('dim_products_history') }}
    where
        not is_deleted
        -- of changes at one moment the last one counts
        and (valid_to is null or valid_to > valid_from)

),

products as (

    select
        product_id,
        price
    from {{ ref('dim_products') }}

),

final as (

    select
        versions.product_id,
        versions.product_name,
        versions.valid_from as changed_at,
        versions.price_before,
        versions.price,
        versions.price / nullif(versions.price_before, 0) - 1 as price_change,
        products.price as price_today
    from versions
    inner join products
        on versions.product_id = products.product_id
    where versions.price <> versions.price_before

)

select * from final
order by
    changed_at,
    product_id
