{% set order_by = ['kafka_timestamp', 'kafka_generation', 'kafka_partition', 'kafka_offset'] %}
{{ config(
    unique_key='trade_key',
    incremental_strategy='earliest',
    order_by=order_by,
    partition_by='bucket(16, trade_key)',
) }}

with ranked as (

    select
        *,
        {{ earliest_of('trade_key', order_by) }} as rank_in_key
    from {{ ref('stg_brokerage__trades') }}
    where {{ in_new_batches() }}

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
        is_event_time_valid,

        kafka_timestamp,
        kafka_generation,
        kafka_partition,
        kafka_offset,
        ingest_batch,
        ingested_at

    from ranked
    where rank_in_key = 1

)

select * from final
