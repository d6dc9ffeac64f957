{{ config(partition_by='ordered_week') }}

with final as (

    select
        ordered_week,
        ordered_at,

        order_line_key,
        order_key,
        line_number,

        channel,
        channel_group,
        store_id,
        region_id,
        coupon_code,

        product_key,
        nullif(product_id, -1) as product_id,
        category,
        quantity,
        unit_price,
        line_amount,

        customer_key,
        key_version

    from {{ ref('fct_order_lines') }}
    where {{ in_exported_weeks('ordered_week') }}

)

select * from final
