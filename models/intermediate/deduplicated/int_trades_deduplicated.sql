{{ config(
    unique_key='trade_key',
    keep='first',
    order_by=['kafka_timestamp', 'kafka_partition', 'kafka_offset'],
    partition_by='bucket(16, trade_key)',
) }}

with ranked as (

    select
        *,
        row_number() over (
            partition by trade_key
            order by kafka_timestamp, kafka_partition, kafka_offset
        ) as rank_in_key
    from {{ ref('stg_brokerage__trades') }}
    where {{ in_new_batches('brokerage', 'stock_trades') }}

),

final as (

    select
        trade_key,

        side,
        symbol,
        quantity,

        price,

        account,
        user_id,

        traded_at,

        kafka_timestamp,
        kafka_partition,
        kafka_offset,
        ingest_batch,
        ingested_at

    from ranked
    where rank_in_key = 1

)

select * from final
