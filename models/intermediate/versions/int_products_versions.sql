{{ config(unique_key='version_key', incremental_strategy='whole') }}

with changes as (

    select
        *,
        {{ monotone_timestamp('product_id') }} as monotone_timestamp
    from {{ ref('stg_shop__products') }}
    where
        {{ in_new_batches('shop', 'shiftleft_public_products') }}
        and product_id is not null

),

periods as (

    select
        *,
        lead(monotone_timestamp) over in_order as valid_to,
        row_number() over in_order = 1 as is_first_version
    from changes
    window
        in_order as (
            partition by product_id
            order by monotone_timestamp, kafka_partition, kafka_offset
        )

),

final as (

    select
        -- keys
        concat(kafka_partition, '-', kafka_offset) as version_key,
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
        monotone_timestamp as valid_from,
        valid_to,

        -- position
        ingest_batch,
        ingested_at

    from periods

)

select * from final
