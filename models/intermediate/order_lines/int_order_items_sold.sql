with order_items as (

    select *
    from {{ ref('int_order_items_priced') }}
    where exclusion_reason is null

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

final as (

    select
        -- keys
        order_items.order_item_id,
        order_items.order_id,
        order_items.product_id,
        order_items.customer_id,

        -- product
        order_items.brand,
        order_items.product_name,
        order_items.price,

        -- customer
        customers.customer_name_masked,
        shipping.city as shipping_city,
        shipping.state as shipping_state,
        billing.state as billing_state,

        -- measures
        order_items.quantity,

        -- flags
        -- greatest() ignores what is NULL: a dimension that is not there
        order_items.ordered_at < greatest(
            order_items.product_valid_from,
            customers.valid_from,
            shipping.valid_from,
            billing.valid_from
        ) as is_backdated_dimension,

        -- time
        order_items.ordered_at,
        order_items.is_event_time_valid

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

)

select * from final
