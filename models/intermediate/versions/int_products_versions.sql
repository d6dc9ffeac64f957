{{ config(unique_key='version_key', incremental_strategy='rebuild_if_changed') }}

with changes as (

    select
        *,
        {{ monotone_timestamp('product_id') }} as monotone_timestamp
    from {{ ref('stg_shop__products') }}
    where
        {{ in_new_batches() }}
        and product_id is not null

),

-- a mirrored topic comes with the stamps of before
starts as (

    select
        *,
        max(monotone_timestamp) over (
            partition by product_id
            order by kafka_generation, monotone_timestamp, kafka_partition, kafka_offset
        ) as valid_from
    from changes

),

periods as (

    select
        *,
        lead(valid_from) over in_order as valid_to,
        row_number() over in_order = 1 as is_first_version
    from starts
    window
        in_order as (
            partition by product_id
            order by kafka_generation, monotone_timestamp, kafka_partition, kafka_offset
        )

),

final as (

    select
        -- keys
        {{ position_key() }} as version_key,
        product_id,

        -- attributes
        brand,
        product_name,
        category,
        description,
        color,
        size,
        stock,

        -- money
        price,

        -- change
        is_deleted,
        is_first_version,
        valid_from,
        valid_to,

        -- position
        ingest_batch,
        ingested_at

    from periods

)

select * from final
