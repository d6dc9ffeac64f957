{{ config(unique_key='version_key', incremental_strategy='whole') }}

with changes as (

    select
        *,
        {{ monotone_timestamp('address_id') }} as monotone_timestamp
    from {{ ref('stg_shop__addresses') }}
    where
        {{ in_new_batches('shop', 'shiftleft_public_addresses') }}
        and address_id is not null

),

periods as (

    select
        *,
        lead(monotone_timestamp) over in_order as valid_to,
        row_number() over in_order = 1 as is_first_version
    from changes
    window
        in_order as (
            partition by address_id
            order by monotone_timestamp, kafka_partition, kafka_offset
        )

),

final as (

    select
        -- keys
        concat(kafka_partition, '-', kafka_offset) as version_key,
        address_id,

        -- place
        street,
        city,
        state,
        postal_code,
        country,

        -- change
        is_deleted,
        is_first_version,
        monotone_timestamp as valid_from,
        valid_to,

        -- position
        ingest_batch,
        ingested_at

    from periods

)

select * from final
