-- no file may mix pseudonyms of two masking keys
with key_versions as (

    select distinct
        'order_lines' as dataset_name,
        ordered_week as week_label,
        key_version
    from {{ ref('exp_weekly__order_lines') }}
    where {{ in_exported_weeks('ordered_week') }}
    union all
    select distinct
        'completed_orders' as dataset_name,
        paid_week as week_label,
        key_version
    from {{ ref('exp_weekly__completed_orders') }}
    where {{ in_exported_weeks('paid_week') }}
    union all
    select distinct
        'customer_activity' as dataset_name,
        ordered_week as week_label,
        key_version
    from {{ ref('exp_weekly__customer_activity') }}
    where {{ in_exported_weeks('ordered_week') }}

)

select
    dataset_name,
    week_label
from key_versions
where key_version is not null
group by dataset_name, week_label
having count(*) > 1
