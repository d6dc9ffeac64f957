with customers as (

    select *
    from {{ ref('int_customers_masked') }}
    where
        valid_to is null
        and not is_deleted

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

final as (

    select
        -- key
        customers.customer_id,

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

        -- time
        customers.valid_from as changed_at

    from customers
    left join addresses as shipping
        on customers.shipping_address_id = shipping.address_id
    left join addresses as billing
        on customers.billing_address_id = billing.address_id

)

select * from final
