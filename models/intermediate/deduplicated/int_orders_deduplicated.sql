{{ config(
    unique_key='order_id',
    keep='last',
    order_by=['kafka_timestamp', 'kafka_partition', 'kafka_offset'],
    partition_by='bucket(16, order_id)',
) }}

with ranked as (

    select
        *,
        row_number() over (
            partition by order_id
            order by kafka_timestamp desc, kafka_partition desc, kafka_offset desc
        ) as rank_in_key
    from {{ ref('stg_shop__orders') }}
    where
        {{ in_new_batches('shop', 'shiftleft_public_orders') }}
        and order_id is not null

),

final as (

    select
        order_id,

        customer_id,

        order_status,
        channel_spelling,

        ordered_at,

        is_deleted,

        kafka_timestamp,
        kafka_partition,
        kafka_offset,
        ingest_batch,
        ingested_at

    from ranked
    where rank_in_key = 1

)

select * from final
