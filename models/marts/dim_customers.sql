with customers as (

    select *
    from {{ ref('int_customers_masked') }}
    where valid_to is null

),

addresses as (

    select
        address_id,
        city,
        state,
        postal_area,
        country
    from {{ ref('int_addresses_masked') }}
    where
        valid_to is null
        and not is_deleted

),

orders as (

    select customer_id
    from {{ ref('int_orders_deduplicated') }}
    where customer_id is not null

),

-- every number that a fact can have, so that no join loses one
members as (

    select customer_id from customers
    union
    select customer_id from orders
    union
    select cast(-1 as bigint) as customer_id

),

final as (

    select
        -- key
        members.customer_id,

        -- attributes
        customers.segment,

        -- addresses
        shipping.city as shipping_city,
        shipping.state as shipping_state,
        shipping.postal_area as shipping_postal_area,
        shipping.country as shipping_country,
        billing.city as billing_city,
        billing.state as billing_state,
        billing.postal_area as billing_postal_area,
        billing.country as billing_country,

        -- masked
        customers.customer_name_masked,
        customers.email_pseudonym,
        customers.key_version,

        -- change
        coalesce(customers.is_deleted, false) as is_deleted,
        customers.valid_from as changed_at

    from members
    left join customers
        on members.customer_id = customers.customer_id
    left join addresses as shipping
        on customers.shipping_address_id = shipping.address_id
    left join addresses as billing
        on customers.billing_address_id = billing.address_id

)

select * from final
