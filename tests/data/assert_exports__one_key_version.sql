-- no file may mix pseudonyms of two masking keys
with key_versions as (

    select distinct
        'order_lines' as dataset,
        key_version
    from {{ ref('exp_weekly__order_lines') }}
    union all
    select distinct
        'completed_orders' as dataset,
        key_version
    from {{ ref('exp_weekly__completed_orders') }}
    union all
    select distinct
        'customer_activity' as dataset,
        key_version
    from {{ ref('exp_weekly__customer_activity') }}

)

select dataset
from key_versions
where key_version is not null
group by dataset
having count(*) > 1
