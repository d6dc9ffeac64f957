-- a table, because the snapshot of its history reads it many times
{{ config(materialized='table') }}

{# Dataset, its mart, and the mart's columns of week, quantity, money and masking key's version. #}
{% set datasets = [
    ('order_lines', ref('fct_order_lines'), 'ordered_week', 'quantity', 'net_price', 'key_version'),
    ('completed_orders', ref('fct_completed_orders'), 'paid_week', 'null', 'amount', 'key_version'),
    ('product_sales', ref('fct_product_sales'), 'ordered_week', 'quantity', 'total_amount', 'null'),
    ('customer_activity', ref('fct_customer_activity_weekly'), 'ordered_week', 'quantity', 'revenue',
        'key_version'),
    ('product_demand', ref('fct_product_demand_weekly'), 'ordered_week', 'quantity', 'revenue',
        'null'),
] %}

with figures as (

    {% for dataset, mart, week, quantity, money, key_version in datasets %}
        select
            '{{ dataset }}' as dataset_name,
            {{ week }} as week_label,
            count(*) as total_rows,
            try_sum(cast({{ quantity }} as bigint)) as quantity,
            try_cast(try_sum({{ money }}) as decimal(18, 2)) as money,
            cast(max({{ key_version }}) as string) as key_version,
            -- changes with any exported value of any row of the week
            cast(sum(cast(
                xxhash64({{ exported_columns(dataset) }}) as decimal(20, 0)
            )) as string) as fingerprint
        from {{ mart }}
        group by {{ week }}
        {% if not loop.last %}
            union all
        {% endif %}
    {% endfor %}

),

final as (

    select
        -- keys
        concat(dataset_name, '/', week_label) as figures_id,
        dataset_name,
        week_label,

        -- figures
        total_rows,
        quantity,
        money,
        key_version,
        fingerprint

    from figures
    -- the figures of a week that is not over change by nature
    where week_label <= '{{ last_complete_week() }}'

)

select * from final
