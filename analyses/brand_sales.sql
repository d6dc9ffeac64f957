with product_sales as (

    select
        coalesce(brand, 'unknown') as brand,
        quantity,
        total_amount
    from {{ ref('fct_product_sales') }}
    where ordered_week = '{{ last_exported_week() }}'

),

brands as (

    select
        brand,
        try_sum(quantity) as quantity,
        sum(total_amount) as product_sales
    from product_sales
    group by brand

),

final as (

    select
        brand,
        quantity,
        product_sales,
        try_divide(product_sales, sum(product_sales) over ()) as sales_share
    from brands

)

select * from final
order by
    product_sales desc nulls last,
    brand asc
