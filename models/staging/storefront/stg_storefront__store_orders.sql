with landed as (

    select *
    from {{ source('storefront', 'pizza_orders') }}
    where
        decode_error is null
        and kafka_raw_value is not null

),

final as (

    select
        -- keys
        concat(store_id, '-', store_order_id) as store_order_key,
        store_id,
        store_order_id,

        -- attributes
        coupon_code,
        date as business_date,
        status as order_status,
        -- field by field, so that one that landed later goes no further
        transform(
            order_lines,
            line -> named_struct(
                'product_id', line.product_id,
                'category', line.category,
                'quantity', line.quantity,
                'unit_price', line.unit_price,
                'net_price', line.net_price
            )
        ) as order_lines,

        -- person
        customer.userid as user_id,
        customer.regionid as region_id,
        customer.gender,
        customer.registertime as registered_epoch_ms,

        -- the payload has no event time: the record's own stands in
        kafka_timestamp as ordered_at,

        -- position
        kafka_timestamp,
        kafka_partition,
        kafka_offset,
        ingest_batch,
        ingested_at

    from landed

)

select * from final
