{{ config(
    materialized='incremental',
    unique_key='order_item_id',
    incremental_strategy='affected_keys',
    follows=['int_order_items_priced', 'int_customers_masked', 'int_addresses_masked'],
    partition_by='truncate(7, ordered_week)',
) }}

with bounds as (

    {{ bounds() }}

),

affected_addresses as (

    select address_id
    from {{ ref('int_addresses_masked') }}
    where {{ changed_in(ref('int_addresses_masked')) }}

),

affected_customers as (

    select customer_id
    from {{ ref('int_customers_masked') }}
    where
        {{ changed_in(ref('int_customers_masked')) }}
        or shipping_address_id in (select affected_addresses.address_id from affected_addresses)
        or billing_address_id in (select affected_addresses.address_id from affected_addresses)

),

affected as (

    {{ affected_order_items() }}
    union
    select order_item_id
    from {{ ref('int_order_items_priced') }}
    where customer_id in (select affected_customers.customer_id from affected_customers)

),

order_items as (

    select order_item_id
    from {{ ref('int_order_items_deduplicated') }}
    where {{ in_affected('order_item_id') }}

),

sold as (

    select *
    from {{ ref('int_order_items_sold') }}
    where {{ in_affected('order_item_id') }}

),

final as (

    select
        -- keys
        sold.ordered_at,
        sold.order_id,
        sold.product_id,
        order_items.order_item_id,

        -- product
        sold.brand,
        sold.product_name,
        sold.price,

        -- customer
        coalesce(sold.customer_id, -1) as customer_id,
        sold.customer_name_masked,
        sold.shipping_city,
        sold.shipping_state,
        sold.billing_state,

        -- measures
        sold.quantity,
        try_cast(try_multiply(sold.quantity, sold.price) as decimal(28, 2)) as total_amount,

        -- flags
        sold.is_backdated_dimension,
        sold.is_event_time_valid,

        -- time
        {{ event_week('sold.ordered_at', 'sold.is_event_time_valid') }} as ordered_week,

        -- increment: the item is deleted or excluded
        sold.order_item_id is null as is_gone

    from order_items
    left join sold
        on order_items.order_item_id = sold.order_item_id

)

select * from final
