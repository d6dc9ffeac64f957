with landed as (

    -- tombstones stay: they delete what their key names
    select *
    from {{ source('shop', 'shiftleft_public_addresses') }}
    where decode_error is null

),

final as (

    select
        -- key
        coalesce(addressid, kafka_key.addressid) as address_id,

        -- place
        street,
        {{ clean_text('city') }} as city,
        {{ clean_text('state') }} as state,
        postalcode as postal_code,
        {{ clean_text('country') }} as country,

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
