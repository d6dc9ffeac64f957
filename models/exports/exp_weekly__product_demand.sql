{{ config(partition_by='ordered_week') }}

with marked as (

    select
        *,
        {{ is_suppressed(
            'customer_count', total='ordered_week, channel_group', key='product_key, category'
        ) }}
            as is_suppressed
    from {{ ref('fct_product_demand_weekly') }}
    where {{ in_exported_weeks('ordered_week') }}

),

final as (

    select
        ordered_week,
        channel_group,
        product_key,
        category,

        is_suppressed,
        if(is_suppressed, null, quantity) as quantity,
        if(is_suppressed, null, line_count) as line_count,
        if(is_suppressed, null, order_count) as order_count,
        if(is_suppressed, null, customer_count) as customer_count,
        if(is_suppressed, null, unpriced_line_count) as unpriced_line_count,
        if(is_suppressed, null, order_value) as order_value

    from marked

)

select * from final
