{% set order_by = ['kafka_timestamp', 'kafka_partition', 'kafka_offset'] %}
{{ config(
    unique_key='address_id',
    incremental_strategy='latest',
    order_by=order_by,
    partition_by='bucket(16, address_id)',
) }}

with ranked as (

    select
        *,
        {{ latest_of('address_id', order_by) }} as rank_in_key
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
