with final as (

    select
        -- keys
        order_item_id,
        order_id,
        product_id,

        -- attributes
        exclusion_reason,
        quantity,

        -- time
        ordered_at

    from {{ ref('int_order_items_priced') }}
    where exclusion_reason is not null

)

select * from final
