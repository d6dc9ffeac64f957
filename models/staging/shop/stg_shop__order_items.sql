with landed as (

    -- tombstones stay: they delete, and only their key says what
    select *
    from {{ source('shop', 'shiftleft_public_order_items') }}
    where decode_error is null

),

final as (

    select
        -- key
        {{ key_of_change('shiftleft_public_order_items', 'orderitemid') }} as order_item_id,

        -- foreign keys
        orderid as order_id,
        productid as product_id,

        -- attributes
        quantity,

        -- change: a tombstone deletes, a row deletes if it says so
        kafka_raw_value is null or coalesce(__deleted = 'true', false) as is_deleted,

        -- position
        kafka_timestamp,
        kafka_partition,
        kafka_offset,
        ingest_batch,
        ingested_at

    from landed

)

select * from final
