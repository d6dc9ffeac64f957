{{ config(partition_by='ordered_week') }}

with final as (

    select
        ordered_week,
        customer_key,
        key_version,

        order_count,
        line_count,
        quantity,
        unpriced_line_count,
        order_value,

        first_ordered_at,
        last_ordered_at

    from {{ ref('fct_customer_activity_weekly') }}
    where {{ in_exported_weeks('ordered_week') }}

)

select * from final
