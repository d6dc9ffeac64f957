{% set order_of_events = [
    'kafka_timestamp',
    'kafka_partition',
    'kafka_offset',
] %}

{{ config(
    unique_key='address_id',
    keep='last',
    order_by=order_of_events,
    partition_by=['bucket(16, address_id)'],
    tblproperties=merge_on_read(),
) }}

with new_addresses as (

    select *
    from {{ ref('stg_shop__addresses') }}
    where {{ in_new_batches('shop', 'shiftleft_public_addresses') }}

),

ranked as (

    select
        *,
        row_number() over (
            partition by address_id
            order by {{ order_of_events | join(' desc, ') }} desc
        ) as rank_in_key
    from new_addresses

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
