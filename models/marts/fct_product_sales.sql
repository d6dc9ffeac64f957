{{ config(
    materialized='incremental',
    unique_key='order_item_id',
    incremental_strategy='affected_keys',
    partition_by='bucket(16, order_item_id)',
) }}

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

),

affected as (

    {{ affected_order_items(through=ref('int_order_items_priced')) }}
    union
    select order_item_id
    from {{ ref('int_order_items_priced') }}
    where customer_id in (select affected_customers.customer_id from affected_customers)

),

order_items as (

    select *
    from {{ ref('int_order_items_priced') }}
    where
        exclusion_reason is null
        and {{ in_affected('order_item_id') }}

),

customers as (

    select
        customer_id,
        customer_name_masked,
        shipping_address_id,
        billing_address_id,
        is_first_version,
        valid_from,
        valid_to
    from {{ ref('int_customers_masked') }}
    where not is_deleted

),

addresses as (

    select
        address_id,
        city,
        state,
        is_first_version,
        valid_from,
        valid_to
    from {{ ref('int_addresses_masked') }}
    where not is_deleted

),

joined as (

    select
        order_items.*,
        customers.customer_name_masked,
        shipping.city as shipping_city,
        shipping.state as shipping_state,
        billing.state as billing_state,
        -- greatest() leaves out what is NULL: a dimension that is not there
        order_items.ordered_at < greatest(
            order_items.product_valid_from,
            customers.valid_from,
            shipping.valid_from,
            billing.valid_from
        ) as is_backdated_dimension
    from order_items
    left join customers
        on
            order_items.customer_id = customers.customer_id
            and {{ valid_as_of('order_items.ordered_at', 'customers') }}
    left join addresses as shipping
        on
            customers.shipping_address_id = shipping.address_id
            and {{ valid_as_of('order_items.ordered_at', 'shipping') }}
    left join addresses as billing
        on
            customers.billing_address_id = billing.address_id
            and {{ valid_as_of('order_items.ordered_at', 'billing') }}

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
        customer_id,
        customer_name_masked,
        shipping_city,
        shipping_state,
        billing_state,

        -- measures
        quantity,
        try_cast(try_multiply(quantity, price) as decimal(28, 2)) as total_amount,

        -- flags
        is_backdated_dimension,
        {{ is_plausible('ordered_at', 'ingested_at') }} as has_plausible_time,

        -- time
        {{ event_week('ordered_at', 'ingested_at') }} as ordered_week

    from joined

)

select * from final
