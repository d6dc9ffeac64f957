{{ config(materialized='table') }}

{# Shop topics hand on their tombstones to staging. #}
{% set dead = 'count(decode_error)' %}
{% set dead_or_tombstone =
    'count(*) - count(kafka_raw_value) filter (where decode_error is null)' %}
{# Bronze table and the figure of what of it is not staged; staging and its key; the model that has
   one row of each key, and which one. #}
{% set sources = [
    (source('payments', 'payments'), dead_or_tombstone,
        ref('stg_payments__payments'), 'order_id', ref('int_payments_deduplicated'), 'true'),
    (source('storefront', 'pizza_orders'), dead_or_tombstone,
        ref('stg_storefront__store_orders'), 'store_order_key',
        ref('int_store_orders_deduplicated'), 'true'),
    (source('brokerage', 'stock_trades'), dead_or_tombstone,
        ref('stg_brokerage__trades'), 'trade_key', ref('int_trades_deduplicated'), 'true'),
    (source('shop', 'shiftleft_public_products'), dead,
        ref('stg_shop__products'), 'product_id', ref('int_products_versions'), 'valid_to is null'),
    (source('shop', 'shiftleft_public_customers'), dead,
        ref('stg_shop__customers'), 'customer_id', ref('int_customers_versions'), 'valid_to is null'),
    (source('shop', 'shiftleft_public_addresses'), dead,
        ref('stg_shop__addresses'), 'address_id', ref('int_addresses_versions'), 'valid_to is null'),
    (source('shop', 'shiftleft_public_orders'), dead,
        ref('stg_shop__orders'), 'order_id', ref('int_orders_deduplicated'), 'true'),
    (source('shop', 'shiftleft_public_order_items'), dead,
        ref('stg_shop__order_items'), 'order_item_id', ref('int_order_items_deduplicated'), 'true'),
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
{% set lines_of_weeks = rows_of(ref('int_store_order_lines_exploded'), in_weeks)
    ~ ' + ' ~ rows_of(ref('int_order_items_priced'), in_weeks) %}
{% set exports = [
    (ref('exp_weekly__completed_orders'), ref('fct_completed_orders'), 'paid_week'),
    (ref('exp_weekly__order_lines'), ref('fct_order_lines'), 'ordered_week'),
    (ref('exp_weekly__product_sales'), ref('fct_product_sales'), 'ordered_week'),
    (ref('exp_weekly__customer_activity'), ref('fct_customer_activity_weekly'), 'ordered_week'),
    (ref('exp_weekly__product_demand'), ref('fct_product_demand_weekly'), 'ordered_week'),
] %}

with checks as (

    -- Topics land while dbt runs: both sides of a check stop at the batch that was read last.
    {% for bronze, not_staged, staging, key, deduplicated, latest in sources %}
        {% set read = 'ingest_batch <= ' ~ read_until(table_properties(deduplicated)) %}
        {{ equation(
            'landed = staged + dead letters + erased + dropped tombstones', bronze,
            rows_of(bronze, read),
            [rows_of(staging, read), rows_of(bronze, read, not_staged)]
        ) }}
        union all
        {{ equation(
            'staged = deduplicated + removed', deduplicated,
            rows_of(staging, read),
            [rows_of(deduplicated, latest), rows_of(staging, read, 'count(*) - count(distinct ' ~ key ~ ')')]
        ) }}
        union all
    {% endfor %}
    {{ equation(
        'payments = clean + quarantined', ref('int_payments_quarantined'),
        rows_of(ref('int_payments_deduplicated')),
        [rows_of(ref('int_payments_masked'), 'has_valid_confirmation_code'), rows_of(ref('int_payments_quarantined'))]
    ) }}
    union all
    {{ equation(
        'payments = completed + unmatched', ref('fct_completed_orders'),
        rows_of(ref('int_payments_deduplicated')),
        [rows_of(ref('fct_completed_orders')), rows_of(ref('int_payments_unmatched'))]
    ) }}
    union all
    -- a payment in both lists can hide one that is in neither: both equations hold only if none is
    {{ equation(
        'payments = completed or unmatched', ref('fct_completed_orders'),
        rows_of(ref('int_payments_deduplicated')),
        [rows_of(completed_or_unmatched)]
    ) }}
    union all
    {{ equation(
        'lengths of the arrays = order lines', ref('fct_order_lines'),
        rows_of(
            ref('int_store_orders_deduplicated'),
            figure='coalesce(sum(greatest(size(order_lines), 0)), 0)'
        ),
        [rows_of(ref('fct_order_lines'), "order_key like 'store-%'")]
    ) }}
    -- every line of every channel is in a dataset's figures, or listed with what it lacks
    {% for mart, left_out in aggregates %}
        union all
        {{ equation(
            'order lines = counted + left out', mart,
            rows_of(ref('int_store_order_lines_exploded')) ~ ' + ' ~ rows_of(ref('int_order_items_priced')),
            [
                rows_of(mart, figure='coalesce(sum(line_count), 0)'),
                rows_of(ref('fct_order_lines_left_out'), left_out),
            ]
        ) }}
    {% endfor %}
    -- a week's events are in its file, or listed with the reason why they are not
    union all
    {{ equation(
        'payments of the weeks = export + unmatched + without a week', ref('exp_weekly__completed_orders'),
        rows_of(ref('int_payments_masked'), in_weeks),
        [
            rows_of(ref('exp_weekly__completed_orders'), in_exported_weeks('paid_week')),
            rows_of(ref('int_payments_unmatched'), in_weeks),
            rows_of(ref('fct_completed_orders'), 'paid_week is null and ' ~ in_weeks),
        ]
    ) }}
    union all
    {{ equation(
        'order lines of the weeks = export + left out', ref('exp_weekly__order_lines'),
        lines_of_weeks,
        [
            rows_of(ref('exp_weekly__order_lines'), in_exported_weeks('ordered_week')),
            rows_of(ref('fct_order_lines_left_out'), 'not (' ~ has_week ~ ') and ' ~ in_weeks),
        ]
    ) }}
    union all
    {{ equation(
        'items of the weeks = export + excluded + without a week', ref('exp_weekly__product_sales'),
        rows_of(ref('int_order_items_priced'), in_weeks),
        [
            rows_of(ref('exp_weekly__product_sales'), in_exported_weeks('ordered_week')),
            rows_of(ref('int_order_items_priced'), 'exclusion_reason is not null and ' ~ in_weeks),
            rows_of(ref('fct_product_sales'), 'ordered_week is null and order_item_id in ('
                ~ 'select order_item_id from ' ~ ref('int_order_items_priced') ~ ' where ' ~ in_weeks ~ ')'),
        ]
    ) }}
    {% for mart, left_out in aggregates %}
        union all
        {{ equation(
            'order lines of the weeks = counted + left out', mart,
            lines_of_weeks,
            [
                rows_of(mart, in_exported_weeks('ordered_week'), 'coalesce(sum(line_count), 0)'),
                rows_of(ref('fct_order_lines_left_out'), left_out ~ ' and ' ~ in_weeks),
            ]
        ) }}
    {% endfor %}
    {% for export, mart, week in exports %}
        union all
        {{ equation(
            'mart rows of the weeks = export', export,
            rows_of(mart, in_exported_weeks(week)),
            [rows_of(export, in_exported_weeks(week))]
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
