with landed as (

    select *
    from {{ source('brokerage', 'stock_trades') }}
    where
        decode_error is null
        and kafka_raw_value is not null

),

final as (

    select
        -- key: trades have none, each record is one trade
        {{ position_key() }} as trade_key,

        -- attributes
        {{ clean_text('side') }} as side,
        {{ clean_text('symbol') }} as symbol,
        try_cast(quantity as bigint) as quantity,

        -- money: the producer counts cents
        try_cast(try_cast(price as decimal(20, 0)) / 100 as decimal(28, 2)) as price,

        -- person
        account,
        userid as user_id,

        -- the payload has no event time: the record's timestamp replaces it
        kafka_timestamp as traded_at,
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
