{{ config(
    materialized='incremental',
    unique_key='order_item_id',
    incremental_strategy='affected_keys',
    follows=['int_order_items_priced', 'int_customers_masked', 'int_addresses_masked'],
    partition_by='truncate(7, ordered_week)',
) }}

with affected as (

    {% call affected_keys() %}
    with affected_addresses as (

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

    )

    {{ affected_order_items() }}
    union
    select order_item_id
    from {{ ref('int_order_items_priced') }}
    where customer_id in (select affected_customers.customer_id from affected_customers)
    {% endcall %}

),

final as (

    select
        -- keys
        ordered_at,
        order_id,
        product_id,
        order_item_id,

        -- product
        brand,
        product_name,
        price,

        -- customer
        coalesce(customer_id, -1) as customer_id,
        customer_name_masked,
        shipping_city,
        shipping_state,
        billing_state,

        -- measures
        quantity,
        try_cast(try_multiply(quantity, price) as decimal(28, 2)) as total_amount,

        -- flags
        is_backdated_dimension,
        is_event_time_valid,

        -- time
        {{ event_week('ordered_at', 'is_event_time_valid') }} as ordered_week

    from {{ ref('int_order_items_sold') }}
    where {{ in_affected('order_item_id') }}

)

select * from final
