{# The web shop's order items that a change of an item, its order or its product
   may have an effect on: the part of `affected` that three models share. `through`
   is as in changed_in(). #}
{% macro affected_order_items(through=none) %}
    select order_item_id
    from {{ ref('int_order_items_deduplicated') }}
    where {{ changed_in(ref('int_order_items_deduplicated'), through) }}
    union
    select order_item_id
    from {{ ref('int_order_items_deduplicated') }}
    where
        order_id in (
            select order_id
            from {{ ref('int_orders_deduplicated') }}
            where {{ changed_in(ref('int_orders_deduplicated'), through) }}
        )
        or product_id in (
            select product_id
            from {{ ref('int_products_versions') }}
            where {{ changed_in(ref('int_products_versions'), through) }}
        )
{% endmacro %}
