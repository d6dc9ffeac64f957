with landed as (

    -- tombstones stay: they delete what their key names
    select *
    from {{ source('shop', 'shiftleft_public_products') }}
    where decode_error is null

),

final as (

    select
        -- key: -1 is the unknown one of the dimension
        nullif(try_cast(coalesce(productid, kafka_key.productid) as bigint), -1) as product_id,

        -- attributes
        {{ clean_text('brand') }} as brand,
        {{ clean_text('productname') }} as product_name,
        {{ clean_text('category') }} as category,
        {{ clean_text('description') }} as description,
        {{ clean_text('color') }} as color,
        {{ clean_text('size') }} as size,
        try_cast(stock as bigint) as stock,

        -- money
        try_cast(price as decimal(28, 2)) as price,
        price is not null and try_cast(price as decimal(28, 2)) is null as is_price_overflow,

        -- change: a tombstone deletes, a row deletes if its __deleted is true
        kafka_raw_value is null or coalesce(__deleted = 'true', false) as is_deleted,

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
