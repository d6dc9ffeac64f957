with demand as (

    select
        channel_group,
        product_key,
        category,
        quantity,
        order_count,
        order_value
    from {{ ref('fct_product_demand_weekly') }}
    where ordered_week = '{{ last_exported_week() }}'

),

products as (

    select
        product_key,
        brand,
        product_name
    from {{ ref('dim_products_all_channels') }}

),

final as (

    select
        demand.channel_group,
        demand.product_key,
        products.brand,
        products.product_name,
        demand.category,
        demand.quantity,
        demand.order_count,
        demand.order_value
    from demand
    inner join products
        on demand.product_key = products.product_key

)

select * from final
order by
    order_value desc nulls last,
    product_key asc,
    channel_group asc,
    category asc
