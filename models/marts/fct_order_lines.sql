with store_order_lines as (

    select *
    from {{ ref('int_store_order_lines_exploded') }}

),

channels as (

    select
        spelling,
        channel,
        channel_group
    from {{ ref('channels') }}

),

-- every channel's lines meet here, in this shape
order_lines as (

    select
        order_line_key,
        order_key,
        line_number,
        channel_spelling,
        store_id,
        region_id,
        coupon_code,
        product_id,
        category,
        quantity,
        unit_price,
        net_price,
        customer_pseudonym,
        key_version,
        ordered_at
    from store_order_lines

),

final as (

    select
        -- keys
        order_lines.order_line_key,
        order_lines.order_key,
        order_lines.line_number,

        -- channel
        coalesce(channels.channel, order_lines.channel_spelling) as channel,
        coalesce(channels.channel_group, 'Other') as channel_group,

        -- attributes
        order_lines.store_id,
        order_lines.region_id,
        order_lines.coupon_code,
        order_lines.product_id,
        order_lines.category,

        -- measures
        order_lines.quantity,
        order_lines.unit_price,
        order_lines.net_price,

        -- masked
        order_lines.customer_pseudonym,
        order_lines.key_version,

        -- time
        order_lines.ordered_at,
        {{ iso_week('order_lines.ordered_at') }} as ordered_week

    from order_lines
    left join channels
        on lower(trim(order_lines.channel_spelling)) = channels.spelling

)

select * from final
