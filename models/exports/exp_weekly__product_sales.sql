{{ config(partition_by='ordered_week') }}

with final as (

    select
        ordered_at,
        order_id,
        product_id,
        order_item_id,

        brand,
        product_name,
        price,

        nullif(customer_id, -1) as customer_id,
        customer_name_masked,
        shipping_city,
        shipping_state,
        billing_state,

        quantity,
        total_amount,

        is_backdated_dimension,
        ordered_week

    from {{ ref('fct_product_sales') }}
    where {{ in_exported_weeks('ordered_week') }}

)

select * from final
