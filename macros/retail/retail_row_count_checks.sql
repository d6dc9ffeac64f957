{# The checks of ops_reconciliation that only the retail models have, next to those of topics and datasets. #}
{% macro retail_row_count_checks() %}
    {% set payments, masked = ref('int_payments_deduplicated'), ref('int_payments_masked') %}
    {% set completed, unmatched = ref('fct_completed_orders'), ref('int_payments_unmatched') %}
    {% set in_either = '(select order_id from ' ~ completed ~ ' union select order_id from ' ~ unmatched ~ ')' %}
    {% set store_lines, items = ref('int_store_order_lines_exploded'), ref('int_order_items_priced') %}
    {% set lines, excluded = ref('fct_order_lines'), ref('fct_order_lines_excluded') %}
    {# The events of the exported weeks, by the moment that a week counts them by. #}
    {% set happened_in_weeks = in_exported_weeks(iso_week('reporting_at')) %}
    {% set of_weeks = 'count_if(' ~ happened_in_weeks ~ ')' %}
    {# Figures, and the lines of which they leave out. #}
    {% set has_week = 'has_order and is_event_time_valid' %}
    {% set aggregates = [
        (ref('fct_customer_activity_weekly'), 'not (' ~ has_week ~ ' and has_customer)'),
        (ref('fct_product_demand_weekly'), 'not (' ~ has_week ~ ' and has_product)'),
    ] %}
    {# Of payments: one in both lists can hide one that is in neither, so the sum is compared and the union. Of weeks:
       an event of the week is in its file, or listed with the reason why it is not. #}
    {% set checks = [
        row_count_check(
            'payments = clean + quarantined', ref('int_payments_quarantined'),
            [counted(payments)],
            [counted(masked, 'count_if(has_valid_confirmation_code)'), counted(ref('int_payments_quarantined'))]
        ),
        row_count_check(
            'payments = completed + unmatched', completed,
            [counted(payments)], [counted(completed), counted(unmatched)]
        ),
        row_count_check(
            'payments = completed or unmatched', completed,
            [counted(payments)], [counted(in_either)]
        ),
        row_count_check(
            'trades = fct_trades', ref('fct_trades'),
            [counted(ref('int_trades_deduplicated'))], [counted(ref('fct_trades'))]
        ),
        row_count_check(
            'lengths of the arrays = order lines', lines,
            [counted(ref('int_store_orders_deduplicated'), 'coalesce(sum(greatest(size(order_lines), 0)), 0)')],
            [counted(lines ~ " where order_key like 'store-%'")]
        ),
        row_count_check(
            'payments of the weeks = export + unmatched + without a week', ref('exp_weekly__completed_orders'),
            [counted(masked, of_weeks)],
            [
                counted(ref('exp_weekly__completed_orders') ~ ' where ' ~ in_exported_weeks('paid_week')),
                counted(unmatched, of_weeks),
                counted(completed ~ ' where paid_week is null', of_weeks),
            ]
        ),
        row_count_check(
            'order lines of the weeks = export + excluded', ref('exp_weekly__order_lines'),
            [counted(store_lines, of_weeks), counted(items, of_weeks)],
            [
                counted(ref('exp_weekly__order_lines') ~ ' where ' ~ in_exported_weeks('ordered_week')),
                counted(excluded, 'count_if(not (' ~ has_week ~ ') and ' ~ happened_in_weeks ~ ')'),
            ]
        ),
        row_count_check(
            'items of the weeks = export + excluded + without a week', ref('exp_weekly__product_sales'),
            [counted(items, of_weeks)],
            [
                counted(ref('exp_weekly__product_sales') ~ ' where ' ~ in_exported_weeks('ordered_week')),
                counted(items, 'count_if(exclusion_reason is not null and ' ~ happened_in_weeks ~ ')'),
                counted(ref('fct_product_sales') ~ ' where ordered_week is null and order_item_id in ('
                    ~ 'select order_item_id from ' ~ items ~ ' where ' ~ happened_in_weeks ~ ')'),
            ]
        ),
    ] %}
    {# Every line of every channel is in a dataset's figures, or listed with what it lacks. #}
    {% for mart, is_excluded in aggregates %}
        {% do checks.extend([
            row_count_check(
                'order lines = counted + excluded', mart,
                [counted(store_lines), counted(items)],
                [
                    counted(mart, 'coalesce(sum(line_count), 0)'),
                    counted(excluded, 'count_if(' ~ is_excluded ~ ')'),
                ]
            ),
            row_count_check(
                'order lines of the weeks = counted + excluded', mart,
                [counted(store_lines, of_weeks), counted(items, of_weeks)],
                [
                    counted(mart ~ ' where ' ~ in_exported_weeks('ordered_week'), 'coalesce(sum(line_count), 0)'),
                    counted(excluded, 'count_if(' ~ is_excluded ~ ' and ' ~ happened_in_weeks ~ ')'),
                ]
            ),
        ]) %}
    {% endfor %}
    {% do return(checks) %}
{% endmacro %}
