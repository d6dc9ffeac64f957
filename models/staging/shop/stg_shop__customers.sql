with landed as (

    -- tombstones stay: they delete what their key names
    select *
    from {{ source('shop', 'shiftleft_public_customers') }}
    where decode_error is null

),

final as (

    select
        -- key: -1 is the unknown one of the dimension
        nullif(try_cast(coalesce(customerid, kafka_key.customerid) as bigint), -1) as customer_id,

        -- person
        customername as customer_name,
        email,

        -- attributes
        {{ clean_text('segment') }} as segment,
        shipping_address_id,
        billing_address_id,

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
