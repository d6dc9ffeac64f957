with product_sales as (

    select
        ordered_week,
        quantity,
        total_amount
    from {{ ref('fct_product_sales') }} timestamp as of '{{ as_of_instants() | last }}'
    where ordered_week is not null

),

final as (

    select
        ordered_week,
        count(*) as item_count,
        try_sum(quantity) as quantity,
        sum(total_amount) as product_sales
    from product_sales
    group by ordered_week

)

select * from final
order by ordered_week
