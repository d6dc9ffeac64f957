-- Each active item is a sale or listed with the reason why it is none, and never both.
with items as (

    select order_item_id
    from {{ ref('int_order_items_deduplicated') }}
    where not is_deleted

),

accounted_for as (

    select order_item_id
    from {{ ref('fct_product_sales') }}
    union all
    select order_item_id
    from {{ ref('int_order_items_excluded') }}

)

select coalesce(items.order_item_id, accounted_for.order_item_id) as order_item_id
from items
full outer join accounted_for
    on items.order_item_id = accounted_for.order_item_id
group by coalesce(items.order_item_id, accounted_for.order_item_id)
having
    count(items.order_item_id) <> 1
    or count(accounted_for.order_item_id) <> 1
