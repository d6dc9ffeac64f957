with landed as (

    -- tombstones stay: they delete what their key names
    select *
    from {{ source('shop', 'shiftleft_public_orders') }}
    where decode_error is null

),

final as (

    select
        -- key
        try_cast(coalesce(orderid, kafka_key.orderid) as bigint) as order_id,

        -- foreign keys: -1 is the unknown one of the dimension
        nullif(try_cast(customerid as bigint), -1) as customer_id,

        -- attributes: the shop omits the channel for online
        {{ clean_text('status') }} as order_status,
        coalesce({{ clean_text('channel') }}, 'online') as channel_spelling,

        -- time: the shop writes it without a zone and means UTC
        cast(orderdate as timestamp) as ordered_at,
        {{ is_event_time_valid('cast(orderdate as timestamp)') }} as is_event_time_valid,

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
