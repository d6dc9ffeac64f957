{{ config(
    materialized='incremental',
    unique_key='order_item_id',
    incremental_strategy='affected_keys',
    follows=['int_order_items_deduplicated', 'int_orders_deduplicated', 'int_products_versions'],
    partition_by='bucket(16, order_item_id)',
) }}

with affected as (

    {% call affected_keys() %}
    {{ affected_order_items('order_item_id, order_id') }}
    {% endcall %}

),

order_items as (

    select
        order_item_id,
        order_id,
        product_id,
        quantity,
        first_seen_at,
        kafka_timestamp,
        ingested_at
    from {{ ref('int_order_items_deduplicated') }}
    where
        not is_deleted
        and {{ in_affected('order_item_id') }}

),

orders as (

    select
        order_id,
        customer_id,
        channel_spelling,
        is_deleted,
        ordered_at,
        is_event_time_valid,
        first_seen_at
    from {{ ref('int_orders_deduplicated') }}
    where {{ in_affected('order_id') }}

),

products as (

    select
        product_id,
        brand,
        product_name,
        category,
        price,
        is_first_version,
        valid_from,
        valid_to
    from {{ ref('int_products_versions') }}
    where not is_deleted

),

final as (

    select
        -- keys
        order_items.order_item_id,
        order_items.order_id,
        order_items.product_id,
        orders.customer_id,

        -- order
        coalesce(not orders.is_deleted, false) as has_order,
        orders.channel_spelling,
        orders.ordered_at,
        coalesce(orders.is_event_time_valid, false) as is_event_time_valid,
        {{ reporting_at('orders.ordered_at', 'orders.is_event_time_valid', 'order_items') }}
            as reporting_at,
        greatest(order_items.first_seen_at, orders.first_seen_at) as known_at,

        -- product
        products.brand,
        products.product_name,
        products.category,
        products.price,
        products.valid_from as product_valid_from,

        -- measures
        order_items.quantity,

        -- what keeps the item out of the sales
        case
            when orders.order_id is null then 'no order'
            when orders.is_deleted then 'order deleted'
            when orders.ordered_at is null then 'no order time'
            when products.product_id is null then 'no product'
            when products.product_name is null then 'no product name'
            when coalesce(products.price, 0) <= 0 then 'no price'
        end as exclusion_reason

    from order_items
    left join orders
        on order_items.order_id = orders.order_id
    left join products
        on
            order_items.product_id = products.product_id
            and {{ valid_as_of('orders.ordered_at', 'products') }}

)

select * from final
