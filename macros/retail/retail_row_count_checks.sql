{# The rows of ops_reconciliation that only the retail models have, behind those of topics and datasets. #}
{% macro retail_row_count_checks() %}
    {% set completed_or_unmatched = '(select order_id from ' ~ ref('fct_completed_orders')
        ~ ' union select order_id from ' ~ ref('int_payments_unmatched') ~ ')' %}
    {# Figures, and the lines of which they leave out. #}
    {% set has_week = 'has_order and is_event_time_valid' %}
    {% set aggregates = [
        (ref('fct_customer_activity_weekly'), 'not (' ~ has_week ~ ' and has_customer)'),
        (ref('fct_product_demand_weekly'), 'not (' ~ has_week ~ ' and has_product)'),
    ] %}
    {# The events of the exported weeks, by the moment that a week counts them by. #}
    {% set in_weeks = in_exported_weeks(iso_week('reporting_at')) %}
    {% set lines_of_weeks = count_rows(ref('int_store_order_lines_exploded'), in_weeks)
        ~ ' + ' ~ count_rows(ref('int_order_items_priced'), in_weeks) %}
    union all
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
    -- a payment in both lists can hide one that is in neither: both checks hold only if none is
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
    {% for mart, is_excluded in aggregates %}
        union all
        {{ row_count_check(
            'order lines = counted + excluded', mart,
            count_rows(ref('int_store_order_lines_exploded')) ~ ' + ' ~ count_rows(ref('int_order_items_priced')),
            [
                count_rows(mart, figure='coalesce(sum(line_count), 0)'),
                count_rows(ref('fct_order_lines_excluded'), is_excluded),
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
        'order lines of the weeks = export + excluded', ref('exp_weekly__order_lines'),
        lines_of_weeks,
        [
            count_rows(ref('exp_weekly__order_lines'), in_exported_weeks('ordered_week')),
            count_rows(ref('fct_order_lines_excluded'), 'not (' ~ has_week ~ ') and ' ~ in_weeks),
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
    {% for mart, is_excluded in aggregates %}
        union all
        {{ row_count_check(
            'order lines of the weeks = counted + excluded', mart,
            lines_of_weeks,
            [
                count_rows(mart, in_exported_weeks('ordered_week'), 'coalesce(sum(line_count), 0)'),
                count_rows(ref('fct_order_lines_excluded'), is_excluded ~ ' and ' ~ in_weeks),
            ]
        ) }}
    {% endfor %}
{% endmacro %}
