{#
    The lists of topics and of weekly files, a line each, by which the models of models/ops count them. They read whole
    tables after these are built, and dbt must know that order before it knows the graph: so the names are listed here.
    `lakehouse scaffold` adds the lines of a new topic.
#}

{# The caller's SQL once per topic. It gets the topic's source and table; the staging model and the column
   that identifies a row in it; the model with one row of each key, or with its versions, of which one has no end; and
   whether staging keeps tombstones. #}
{% macro every_topic() %}
    {%- for topic in [
        dict(source='payments', table='payments', staged='stg_payments__payments', key='order_id',
            deduplicated='int_payments_deduplicated'),
        dict(source='storefront', table='pizza_orders', staged='stg_storefront__store_orders', key='store_order_key',
            deduplicated='int_store_orders_deduplicated'),
        dict(source='brokerage', table='stock_trades', staged='stg_brokerage__trades', key='trade_key',
            deduplicated='int_trades_deduplicated'),
        dict(source='shop', table='shiftleft_public_products', staged='stg_shop__products', key='product_id',
            deduplicated='int_products_versions', has_versions=true, keeps_tombstones=true),
        dict(source='shop', table='shiftleft_public_customers', staged='stg_shop__customers', key='customer_id',
            deduplicated='int_customers_versions', has_versions=true, keeps_tombstones=true),
        dict(source='shop', table='shiftleft_public_addresses', staged='stg_shop__addresses', key='address_id',
            deduplicated='int_addresses_versions', has_versions=true, keeps_tombstones=true),
        dict(source='shop', table='shiftleft_public_orders', staged='stg_shop__orders', key='order_id',
            deduplicated='int_orders_deduplicated', keeps_tombstones=true),
        dict(source='shop', table='shiftleft_public_order_items', staged='stg_shop__order_items', key='order_item_id',
            deduplicated='int_order_items_deduplicated', keeps_tombstones=true),
    ] %}
    {{ caller(topic) }}
    {%- endfor -%}
{% endmacro %}


{# The caller's SQL once per weekly file. It gets the dataset, its mart, and the mart's columns of week, quantity,
   money and masking key's version; those that it does not have are omitted. #}
{% macro every_dataset(separator='union all') %}
    {%- for dataset in [
        dict(name='order_lines', mart='fct_order_lines',
            week='ordered_week', quantity='quantity', money='line_amount', key_version='key_version'),
        dict(name='completed_orders', mart='fct_completed_orders',
            week='paid_week', money='amount', key_version='key_version'),
        dict(name='product_sales', mart='fct_product_sales',
            week='ordered_week', quantity='quantity', money='total_amount'),
        dict(name='customer_activity', mart='fct_customer_activity_weekly',
            week='ordered_week', quantity='quantity', money='order_value', key_version='key_version'),
        dict(name='product_demand', mart='fct_product_demand_weekly',
            week='ordered_week', quantity='quantity', money='order_value'),
    ] %}
    {{ caller(dataset) }}
    {{ separator if not loop.last }}
    {%- endfor -%}
{% endmacro %}
