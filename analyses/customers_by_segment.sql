with customers as (

    select
        customer_id,
        coalesce(segment, 'unknown') as segment
    from {{ ref('dim_customers') }}
    where
        customer_id <> -1
        and not is_deleted

),

versions as (

    select
        customer_id,
        coalesce(segment, 'unknown') as segment
    from {{ ref('dim_customers_history') }}
    where not is_deleted

),

moved as (

    select distinct customers.customer_id
    from customers
    inner join versions
        on customers.customer_id = versions.customer_id
    where customers.segment <> versions.segment

),

final as (

    select
        customers.segment,
        count(*) as customer_count,
        count(*) / sum(count(*)) over () as customer_share,
        count(moved.customer_id) as of_another_segment_before
    from customers
    left join moved
        on customers.customer_id = moved.customer_id
    group by customers.segment

)

select * from final
order by
    customer_count desc,
    segment asc
