{{ config(
    unique_key='address_id',
    keep='last',
    order_by=['kafka_timestamp', 'kafka_partition', 'kafka_offset'],
    partition_by='bucket(16, address_id)',
) }}

with ranked as (

    select
        *,
        row_number() over (
            partition by address_id
            order by kafka_timestamp desc, kafka_partition desc, kafka_offset desc
        ) as rank_in_key
    from {{ ref('stg_shop__addresses') }}
    where
        {{ in_new_batches('shop', 'shiftleft_public_addresses') }}
        and address_id is not null

),

final as (

    select
        address_id,

        street,
        city,
        state,
        postal_code,
        country,

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
