-- a table, because the snapshot of its history reads it many times
{{ config(materialized='table') }}

{# Dataset, its mart, and the mart's columns of week, quantity and money. #}
{% set datasets = [
    ('order_lines', ref('fct_order_lines'), 'ordered_week', 'quantity', 'net_price'),
    ('completed_orders', ref('fct_completed_orders'), 'paid_week', 'null', 'amount'),
    ('product_sales', ref('fct_product_sales'), 'ordered_week', 'quantity', 'total_amount'),
    ('customer_activity', ref('fct_customer_activity_weekly'), 'ordered_week', 'quantity', 'revenue'),
    ('product_demand', ref('fct_product_demand_weekly'), 'ordered_week', 'quantity', 'revenue'),
] %}

with figures as (

    {% for dataset, mart, week, quantity, money in datasets %}
        select
            '{{ dataset }}' as dataset_name,
            {{ week }} as week_label,
            count(*) as total_rows,
            cast(sum({{ quantity }}) as bigint) as quantity,
            cast(sum({{ money }}) as decimal(18, 2)) as money
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
        money

    from figures
    -- the figures of a week that is not over change by nature
    where week_label <= '{{ last_complete_week() }}'

)

select * from final
