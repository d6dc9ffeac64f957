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
        try_cast(store_id as bigint) as store_id,
        try_cast(store_order_id as bigint) as store_order_id,

        -- attributes
        try_cast(coupon_code as bigint) as coupon_code,
        date as business_date,
        {{ clean_text('status') }} as order_status,
        -- field by field, so that one that landed later goes no further
        transform(
            order_lines,
            line -> named_struct(
                'product_id', try_cast(line.product_id as bigint),
                'category', {{ clean_text('line.category') }},
                'quantity', try_cast(line.quantity as bigint),
                'unit_price', try_cast(line.unit_price as decimal(28, 2)),
                'line_amount', try_cast(line.net_price as decimal(28, 2)),
                'is_price_overflow', (
                    line.unit_price is not null
                    and try_cast(line.unit_price as decimal(28, 2)) is null
                    or line.net_price is not null
                    and try_cast(line.net_price as decimal(28, 2)) is null
                )
            )
        ) as order_lines,

        -- person
        customer.userid as user_id,
        {{ clean_text('customer.regionid') }} as region_id,
        customer.gender,
        customer.registertime as registered_epoch_ms,

        -- the payload has no event time: the record's timestamp replaces it
        kafka_timestamp as ordered_at,
        {{ is_event_time_valid('kafka_timestamp') }} as is_event_time_valid,

        -- position
        kafka_timestamp,
        coalesce(kafka_generation, 0) as kafka_generation,
        kafka_partition,
        kafka_offset,
        ingest_batch,
        ingested_at

    from landed

)

select * from final
