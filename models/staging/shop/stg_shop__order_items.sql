with landed as (

    -- tombstones stay: they delete what their key names
    select *
    from {{ source('shop', 'shiftleft_public_order_items') }}
    where decode_error is null

),

final as (

    select
        -- key
        try_cast(coalesce(orderitemid, kafka_key.orderitemid) as bigint) as order_item_id,

        -- foreign keys: -1 is the unknown one of the dimension
        try_cast(orderid as bigint) as order_id,
        nullif(try_cast(productid as bigint), -1) as product_id,

        -- attributes
        try_cast(quantity as bigint) as quantity,

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
