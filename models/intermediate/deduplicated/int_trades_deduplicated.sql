{% set order_of_events = [
    'kafka_timestamp',
    'kafka_partition',
    'kafka_offset',
] %}

{{ config(
    unique_key='trade_key',
    keep='first',
    order_by=order_of_events,
    partition_by=['bucket(16, trade_key)'],
    tblproperties=merge_on_read(),
) }}

with new_trades as (

    select *
    from {{ ref('stg_brokerage__trades') }}
    where {{ in_new_batches('brokerage', 'stock_trades') }}

),

ranked as (

    select
        *,
        row_number() over (
            partition by trade_key
            order by {{ order_of_events | join(', ') }}
        ) as rank_in_key
    from new_trades

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
