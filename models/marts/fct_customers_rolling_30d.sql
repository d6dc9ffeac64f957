{{ config(
    materialized='incremental',
    incremental_strategy='replace_partitions',
    partitions='as_of_instants',
    partition_by='as_of',
) }}

with instants as (

    select explode(array(
        {% for instant in with_stored_partitions(as_of_instants()) %}
            timestamp '{{ instant }}'{{ ',' if not loop.last }}
        {% endfor %}
    )) as as_of

),

product_sales as (

    select
        customer_id,
        order_id,
        total_amount,
        ordered_at
    from {{ ref('fct_product_sales') }}
    where
        customer_id <> -1
        and is_event_time_valid

),

final as (

    select
        -- key
        product_sales.customer_id,

        -- measures
        sum(product_sales.total_amount) as total_amount_30d,
        count_if(product_sales.total_amount is null) as unpriced_line_count,
        count(distinct product_sales.order_id) as order_count_30d,

        -- time
        instants.as_of

    from product_sales
    inner join instants
        on
            -- open at the start, closed at the as-of instant
            product_sales.ordered_at > instants.as_of - interval 30 days
            and product_sales.ordered_at <= instants.as_of
    group by
        product_sales.customer_id,
        instants.as_of

)

select * from final
