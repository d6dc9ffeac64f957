with payments as (

    select
        'payments' as source_system,
        cast(order_id as string) as business_key,
        struct(
            product_id,
            customer_id,
            confirmation_code,
            payment_method,
            amount,
            card_number,
            card_expiration,
            paid_at
        ) as content,
        kafka_timestamp
    from {{ ref('stg_payments__payments') }}
    where order_id is not null

),

store_orders as (

    select
        'storefront' as source_system,
        store_order_key as business_key,
        struct(
            coupon_code,
            business_date,
            order_status,
            order_lines,
            user_id,
            region_id,
            gender,
            registered_epoch_ms
        ) as content,
        kafka_timestamp
    from {{ ref('stg_storefront__store_orders') }}
    where store_order_key is not null

),

payment_conflicts as (

    select
        source_system,
        business_key,
        count(*) as records,
        count(distinct content) as distinct_payloads,
        min(kafka_timestamp) as first_seen_at,
        max(kafka_timestamp) as last_seen_at
    from payments
    group by source_system, business_key
    having count(distinct content) > 1

),

store_order_conflicts as (

    select
        source_system,
        business_key,
        count(*) as records,
        count(distinct content) as distinct_payloads,
        min(kafka_timestamp) as first_seen_at,
        max(kafka_timestamp) as last_seen_at
    from store_orders
    group by source_system, business_key
    having count(distinct content) > 1

),

final as (

    select * from payment_conflicts
    union all
    select * from store_order_conflicts

)

select * from final
