{{ config(materialized='table') }}

{# Staging keeps the tombstones of shop topics. #}
{% set dead = 'count(decode_error)' %}
{% set dead_or_tombstone =
    'count(*) - count(kafka_raw_value) filter (where decode_error is null)' %}
{# A topic's table and the figure of its rows that are not staged; staging and its key; the model
   with one row of each key, and which of its rows those are. #}
{% set topics = [
    dict(bronze=source('payments', 'payments'), not_staged=dead_or_tombstone, key='order_id',
        staged=ref('stg_payments__payments'), deduplicated=ref('int_payments_deduplicated')),
    dict(bronze=source('storefront', 'pizza_orders'), not_staged=dead_or_tombstone, key='store_order_key',
        staged=ref('stg_storefront__store_orders'), deduplicated=ref('int_store_orders_deduplicated')),
    dict(bronze=source('brokerage', 'stock_trades'), not_staged=dead_or_tombstone, key='trade_key',
        staged=ref('stg_brokerage__trades'), deduplicated=ref('int_trades_deduplicated')),
    dict(bronze=source('shop', 'shiftleft_public_products'), not_staged=dead, key='product_id',
        staged=ref('stg_shop__products'), deduplicated=ref('int_products_versions'), where='valid_to is null'),
    dict(bronze=source('shop', 'shiftleft_public_customers'), not_staged=dead, key='customer_id',
        staged=ref('stg_shop__customers'), deduplicated=ref('int_customers_versions'), where='valid_to is null'),
    dict(bronze=source('shop', 'shiftleft_public_addresses'), not_staged=dead, key='address_id',
        staged=ref('stg_shop__addresses'), deduplicated=ref('int_addresses_versions'), where='valid_to is null'),
    dict(bronze=source('shop', 'shiftleft_public_orders'), not_staged=dead, key='order_id',
        staged=ref('stg_shop__orders'), deduplicated=ref('int_orders_deduplicated')),
    dict(bronze=source('shop', 'shiftleft_public_order_items'), not_staged=dead, key='order_item_id',
        staged=ref('stg_shop__order_items'), deduplicated=ref('int_order_items_deduplicated')),
] %}
{% set completed_or_unmatched = '(select order_id from ' ~ ref('fct_completed_orders')
    ~ ' union select order_id from ' ~ ref('int_payments_unmatched') ~ ')' %}
{# Figures, and the lines of which they leave out. #}
{% set has_week = 'has_order and is_event_time_valid' %}
{% set aggregates = [
    (ref('fct_customer_activity_weekly'), 'not (' ~ has_week ~ ' and has_customer)'),
    (ref('fct_product_demand_weekly'), 'not (' ~ has_week ~ ' and has_product)'),
] %}
{# The events of the exported weeks, by the moment that a week counts them by. #}
{% set in_weeks = in_exported_weeks(iso_week('counted_at')) %}
{% set lines_of_weeks = count_rows(ref('int_store_order_lines_exploded'), in_weeks)
    ~ ' + ' ~ count_rows(ref('int_order_items_priced'), in_weeks) %}
{% set exports = [
    (ref('exp_weekly__completed_orders'), ref('fct_completed_orders'), 'paid_week'),
    (ref('exp_weekly__order_lines'), ref('fct_order_lines'), 'ordered_week'),
    (ref('exp_weekly__product_sales'), ref('fct_product_sales'), 'ordered_week'),
    (ref('exp_weekly__customer_activity'), ref('fct_customer_activity_weekly'), 'ordered_week'),
    (ref('exp_weekly__product_demand'), ref('fct_product_demand_weekly'), 'ordered_week'),
] %}

with checks as (

    -- Topics land while dbt runs: both sides of a check stop at the batch that was read last.
    {% for topic in topics %}
        {% set read = 'ingest_batch <= ' ~ read_until(table_properties(topic.deduplicated)) %}
        {{ row_count_check(
            'landed = staged + dead letters + erased + dropped tombstones', topic.bronze,
            count_rows(topic.bronze, read),
            [count_rows(topic.staged, read), count_rows(topic.bronze, read, topic.not_staged)]
        ) }}
        union all
        {{ row_count_check(
            'staged = deduplicated + removed', topic.deduplicated,
            count_rows(topic.staged, read),
            [
                count_rows(topic.deduplicated, topic.where or 'true'),
                count_rows(topic.staged, read, 'count(*) - count(distinct ' ~ topic.key ~ ')'),
            ]
        ) }}
        union all
    {% endfor %}
    {{ row_count_check(
        'payments = clean + quarantined', ref('int_payments_quarantined'),
        count_rows(ref('int_payments_deduplicated')),
        [count_rows(ref('int_payments_masked'), 'has_valid_confirmation_code'), count_rows(ref('int_payments_quarantined'))]
    ) }}
    union all
    {{ row_count_check(
        'payments = completed + unmatched', ref('fct_completed_orders'),
        count_rows(ref('int_payments_deduplicated')),
        [count_rows(ref('fct_completed_orders')), count_rows(ref('int_payments_unmatched'))]
    ) }}
    union all
    -- a payment in both lists can hide one that is in neither: both equations hold only if none is
    {{ row_count_check(
        'payments = completed or unmatched', ref('fct_completed_orders'),
        count_rows(ref('int_payments_deduplicated')),
        [count_rows(completed_or_unmatched)]
    ) }}
    union all
    {{ row_count_check(
        'lengths of the arrays = order lines', ref('fct_order_lines'),
        count_rows(
            ref('int_store_orders_deduplicated'),
            figure='coalesce(sum(greatest(size(order_lines), 0)), 0)'
        ),
        [count_rows(ref('fct_order_lines'), "order_key like 'store-%'")]
    ) }}
    -- every line of every channel is in a dataset's figures, or listed with what it lacks
    {% for mart, left_out in aggregates %}
        union all
        {{ row_count_check(
            'order lines = counted + left out', mart,
            count_rows(ref('int_store_order_lines_exploded')) ~ ' + ' ~ count_rows(ref('int_order_items_priced')),
            [
                count_rows(mart, figure='coalesce(sum(line_count), 0)'),
                count_rows(ref('fct_order_lines_left_out'), left_out),
            ]
        ) }}
    {% endfor %}
    -- a week's events are in its file, or listed with the reason why they are not
    union all
    {{ row_count_check(
        'payments of the weeks = export + unmatched + without a week', ref('exp_weekly__completed_orders'),
        count_rows(ref('int_payments_masked'), in_weeks),
        [
            count_rows(ref('exp_weekly__completed_orders'), in_exported_weeks('paid_week')),
            count_rows(ref('int_payments_unmatched'), in_weeks),
            count_rows(ref('fct_completed_orders'), 'paid_week is null and ' ~ in_weeks),
        ]
    ) }}
    union all
    {{ row_count_check(
        'order lines of the weeks = export + left out', ref('exp_weekly__order_lines'),
        lines_of_weeks,
        [
            count_rows(ref('exp_weekly__order_lines'), in_exported_weeks('ordered_week')),
            count_rows(ref('fct_order_lines_left_out'), 'not (' ~ has_week ~ ') and ' ~ in_weeks),
        ]
    ) }}
    union all
    {{ row_count_check(
        'items of the weeks = export + excluded + without a week', ref('exp_weekly__product_sales'),
        count_rows(ref('int_order_items_priced'), in_weeks),
        [
            count_rows(ref('exp_weekly__product_sales'), in_exported_weeks('ordered_week')),
            count_rows(ref('int_order_items_priced'), 'exclusion_reason is not null and ' ~ in_weeks),
            count_rows(ref('fct_product_sales'), 'ordered_week is null and order_item_id in ('
                ~ 'select order_item_id from ' ~ ref('int_order_items_priced') ~ ' where ' ~ in_weeks ~ ')'),
        ]
    ) }}
    {% for mart, left_out in aggregates %}
        union all
        {{ row_count_check(
            'order lines of the weeks = counted + left out', mart,
            lines_of_weeks,
            [
                count_rows(mart, in_exported_weeks('ordered_week'), 'coalesce(sum(line_count), 0)'),
                count_rows(ref('fct_order_lines_left_out'), left_out ~ ' and ' ~ in_weeks),
            ]
        ) }}
    {% endfor %}
    {% for export, mart, week in exports %}
        union all
        {{ row_count_check(
            'mart rows of the weeks = export', export,
            count_rows(mart, in_exported_weeks(week)),
            [count_rows(export, in_exported_weeks(week))]
        ) }}
    {% endfor %}

),

final as (

    select
        check_name,
        subject,
        left_rows,
        right_rows,
        left_rows - right_rows as difference
    from checks

)

select * from final
