{{ config(
    materialized='incremental',
    unique_key='order_line_key',
    affected_key='record_key',
    incremental_strategy='affected_keys',
    follows=['int_store_orders_masked', 'int_order_items_priced'],
    partition_by='truncate(7, ordered_week)',
) }}

{# Lines, and the key of the record that they come from. #}
{% set lines_of_channels = [
    (ref('int_store_order_lines_exploded'), 'order_key'),
    (ref('int_shop_order_lines_priced'), 'order_line_key'),
] %}

-- store orders with all their lines, and web shop lines one by one
with affected as (

    {% call affected_keys() %}
    select concat('store-', store_order_key) as record_key
    from {{ ref('int_store_orders_masked') }}
    where {{ changed_in(ref('int_store_orders_masked')) }}
    union all
    select concat('shop-', order_item_id) as record_key
    from (
        {{ affected_order_items() }}
    )
    {% endcall %}

),

order_lines as (

    {% for lines, key in lines_of_channels %}
    select
        order_line_key,
        order_key,
        {{ key }} as record_key,
        line_number,
        channel_spelling,
        store_id,
        region_id,
        coupon_code,
        product_key,
        product_id,
        category,
        quantity,
        unit_price,
        line_amount,
        customer_key,
        key_version,
        ordered_at,
        is_event_time_valid
    from {{ lines }}
    where {{ in_affected(key, 'record_key') }}
    {% if not loop.last %}
    union all
    {% endif %}
    {% endfor %}

),

channels as (

    select
        spelling,
        channel,
        channel_group
    from {{ ref('channels') }}

),

normalised as (

    select
        *,
        lower(channel_spelling) as spelling
    from order_lines

),

final as (

    select
        -- keys
        normalised.order_line_key,
        normalised.order_key,
        normalised.record_key,
        normalised.line_number,

        -- channel
        coalesce(channels.channel, normalised.spelling) as channel,
        coalesce(channels.channel_group, 'Other') as channel_group,

        -- attributes
        normalised.store_id,
        normalised.region_id,
        normalised.coupon_code,
        normalised.product_key,
        coalesce(normalised.product_id, -1) as product_id,
        normalised.category,

        -- measures
        normalised.quantity,
        normalised.unit_price,
        normalised.line_amount,

        -- masked
        normalised.customer_key,
        normalised.key_version,

        -- time
        normalised.ordered_at,
        normalised.is_event_time_valid,
        {{ event_week('normalised.ordered_at', 'normalised.is_event_time_valid') }} as ordered_week

    from normalised
    left join channels
        on normalised.spelling = channels.spelling

)

select * from final
