{# Model, column, issue, and the condition for it. #}
{% set no_key = 'missing: no model after staging has the record' %}
{% set no_time = 'missing or invalid: in no week' %}
{% set too_large = 'does not fit its type: NULL' %}
{% set no_sum = 'no value is known, or their sum does not fit its type: NULL' %}
{% set issues = [
    (ref('stg_payments__payments'), 'order_id', no_key, 'order_id is null'),
    (ref('stg_storefront__store_orders'), 'store_order_key', no_key, 'store_order_key is null'),
    (ref('stg_shop__addresses'), 'address_id', no_key, 'address_id is null'),
    (ref('stg_shop__customers'), 'customer_id', no_key, 'customer_id is null'),
    (ref('stg_shop__products'), 'product_id', no_key, 'product_id is null'),
    (ref('stg_shop__orders'), 'order_id', no_key, 'order_id is null'),
    (ref('stg_shop__order_items'), 'order_item_id', no_key, 'order_item_id is null'),
    (ref('int_payments_deduplicated'), 'paid_at', no_time, 'not is_event_time_valid'),
    (ref('int_store_orders_deduplicated'), 'ordered_at', no_time, 'not is_event_time_valid'),
    (ref('int_orders_deduplicated'), 'ordered_at', no_time,
        'not is_deleted and not is_event_time_valid'),
    (ref('int_trades_deduplicated'), 'traded_at', no_time, 'not is_event_time_valid'),
    (ref('int_store_orders_deduplicated'), 'order_lines', 'missing: no order line',
        'coalesce(size(order_lines), 0) <= 0'),
    (ref('stg_payments__payments'), 'amount', too_large, 'is_amount_overflow'),
    (ref('stg_shop__products'), 'price', too_large, 'is_price_overflow'),
    (ref('int_store_order_lines_exploded'), 'unit_price, line_amount', too_large,
        'is_price_overflow'),
    (ref('fct_order_lines'), 'line_amount', too_large,
        'line_amount is null and quantity is not null and unit_price is not null'),
    (ref('fct_product_sales'), 'total_amount', too_large,
        'total_amount is null and quantity is not null and price is not null'),
    (ref('fct_trades'), 'total_price', too_large,
        'total_price is null and quantity is not null and price is not null'),
    (ref('fct_customer_activity_weekly'), 'quantity', no_sum, 'quantity is null'),
    (ref('fct_product_demand_weekly'), 'quantity', no_sum, 'quantity is null'),
] %}

with issues as (

    {% for relation, column, issue_type, condition in issues %}
        select
            '{{ relation.identifier }}' as model_name,
            '{{ column }}' as column_name,
            '{{ issue_type }}' as issue_type,
            count_if({{ condition }}) as row_count
        from {{ relation }}
        {% if not loop.last %}
            union all
        {% endif %}
    {% endfor %}

),

final as (

    select
        model_name,
        column_name,
        issue_type,
        row_count
    from issues

)

select * from final
