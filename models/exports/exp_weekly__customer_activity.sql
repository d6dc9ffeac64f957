{{ config(partition_by='ordered_week') }}

with customer_activity as (

    select *
    from {{ ref('fct_customer_activity_weekly') }}
    where {{ in_exported_weeks('ordered_week') }}

),

final as (

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

    from customer_activity

)

select * from final
