{# The web shop's order items that a change of an item, its order or its product can have an effect on: the keys that
   three models share. #}
{% macro affected_order_items(columns='order_item_id') %}
    select {{ columns }}
    from {{ ref('int_order_items_deduplicated') }}
    where {{ changed_in(ref('int_order_items_deduplicated')) }}
    union
    select {{ columns }}
    from {{ ref('int_order_items_deduplicated') }}
    where
        order_id in (
            select order_id
            from {{ ref('int_orders_deduplicated') }}
            where {{ changed_in(ref('int_orders_deduplicated')) }}
        )
        or product_id in (
            select product_id
            from {{ ref('int_products_versions') }}
            where {{ changed_in(ref('int_products_versions')) }}
        )
{% endmacro %}
