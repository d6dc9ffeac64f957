{{ config(materialized='table') }}

{# Bronze table, staging, deduplicated table, its key, and whether tombstones go on to staging. #}
{% set sources = [
    (source('payments', 'payments'), ref('stg_payments__payments'),
        ref('int_payments_deduplicated'), 'order_id', false),
    (source('storefront', 'pizza_orders'), ref('stg_storefront__store_orders'),
        ref('int_store_orders_deduplicated'), 'store_order_key', false),
    (source('brokerage', 'stock_trades'), ref('stg_brokerage__trades'),
        ref('int_trades_deduplicated'), 'trade_key', false),
    (source('shop', 'shiftleft_public_products'), ref('stg_shop__products'),
        ref('int_products_deduplicated'), 'product_id', true),
    (source('shop', 'shiftleft_public_customers'), ref('stg_shop__customers'),
        ref('int_customers_deduplicated'), 'customer_id', true),
    (source('shop', 'shiftleft_public_addresses'), ref('stg_shop__addresses'),
        ref('int_addresses_deduplicated'), 'address_id', true),
    (source('shop', 'shiftleft_public_orders'), ref('stg_shop__orders'),
        ref('int_orders_deduplicated'), 'order_id', true),
    (source('shop', 'shiftleft_public_order_items'), ref('stg_shop__order_items'),
        ref('int_order_items_deduplicated'), 'order_item_id', true),
] %}
{% set aggregates = [
    (ref('fct_customer_activity_weekly'), 'without_customer'),
    (ref('fct_product_demand_weekly'), 'without_product'),
] %}
{% set exports = [
    (ref('exp_weekly__completed_orders'), ref('fct_completed_orders'), 'paid_week'),
    (ref('exp_weekly__order_lines'), ref('fct_order_lines'), 'ordered_week'),
    (ref('exp_weekly__product_sales'), ref('fct_product_sales'), 'ordered_week'),
    (ref('exp_weekly__customer_activity'), ref('fct_customer_activity_weekly'), 'ordered_week'),
    (ref('exp_weekly__product_demand'), ref('fct_product_demand_weekly'), 'ordered_week'),
] %}

-- Topics land while dbt runs: both sides of a check stop at the same batch.
with landed_or_staged as (

    {% for bronze, staging, deduplicated, key, tombstones in sources %}
        {% set newest = newest_batch(bronze) %}
        select
            'landed = staged + dead letters + erased + dropped tombstones' as check_name,
            '{{ bronze.identifier }}' as subject,
            count(*) as left_rows,
            {% if tombstones %}
                count(decode_error)
            {% else %}
                count(*) - count(kafka_raw_value) filter (where decode_error is null)
            {% endif %}
            + (
                select count(*)
                from {{ staging }} as staged
                where staged.ingest_batch <= {{ newest }}
            ) as right_rows
        from {{ bronze }}
        where ingest_batch <= {{ newest }}
        {% if not loop.last %}
            union all
        {% endif %}
    {% endfor %}

),

kept_or_removed as (

    {% for bronze, staging, deduplicated, key, tombstones in sources %}
        select
            'staged = deduplicated + removed' as check_name,
            '{{ deduplicated.identifier }}' as subject,
            count(*) as left_rows,
            count(*) - count(distinct {{ key }})
            + (select count(*) from {{ deduplicated }}) as right_rows
        from {{ staging }}
        where ingest_batch <= {{ read_until(table_properties(deduplicated)) }}
        {% if not loop.last %}
            union all
        {% endif %}
    {% endfor %}

),

clean_or_quarantined as (

    select
        'payments = clean + quarantined' as check_name,
        'int_payments_quarantined' as subject,
        (select count(*) from {{ ref('int_payments_deduplicated') }}) as left_rows,
        count_if(has_valid_confirmation_code)
        + (select count(*) from {{ ref('int_payments_quarantined') }}) as right_rows
    from {{ ref('int_payments_masked') }}

),

completed_or_unmatched as (

    select
        'payments = completed + unmatched' as check_name,
        'fct_completed_orders' as subject,
        count(*) as left_rows,
        (select count(*) from {{ ref('fct_completed_orders') }})
        + (select count(*) from {{ ref('int_payments_unmatched') }}) as right_rows
    from {{ ref('int_payments_deduplicated') }}

),

exploded as (

    select
        'lengths of the arrays = order lines' as check_name,
        'fct_order_lines' as subject,
        coalesce(sum(greatest(size(order_lines), 0)), 0) as left_rows,
        (
            select count(*)
            from {{ ref('fct_order_lines') }} as order_lines
            where order_lines.order_key like 'store-%'
        ) as right_rows
    from {{ ref('int_store_orders_deduplicated') }}

),

left_out as (

    select
        count_if(not (has_order and has_plausible_time and has_customer)) as without_customer,
        count_if(not (has_order and has_plausible_time and has_product)) as without_product
    from {{ ref('fct_order_lines_left_out') }}

),

-- every line of every channel is in a dataset's figures, or listed with what it lacks
counted_or_left_out as (

    {% for mart, lines_left_out in aggregates %}
        select
            'order lines = counted + left out' as check_name,
            '{{ mart.identifier }}' as subject,
            (select count(*) from {{ ref('int_store_order_lines_exploded') }})
            + (select count(*) from {{ ref('int_order_items_priced') }}) as left_rows,
            (select coalesce(sum(figures.line_count), 0) from {{ mart }} as figures)
            + left_out.{{ lines_left_out }} as right_rows
        from left_out
        {% if not loop.last %}
            union all
        {% endif %}
    {% endfor %}

),

exported as (

    {% for export, mart, week in exports %}
        select
            'mart rows of the weeks = export' as check_name,
            '{{ export.identifier }}' as subject,
            count(*) as left_rows,
            (
                select count(*)
                from {{ export }} as exported_rows
                where {{ in_exported_weeks('exported_rows.' ~ week) }}
            ) as right_rows
        from {{ mart }}
        where {{ in_exported_weeks(week) }}
        {% if not loop.last %}
            union all
        {% endif %}
    {% endfor %}

),

checks as (

    select * from landed_or_staged
    union all
    select * from kept_or_removed
    union all
    select * from clean_or_quarantined
    union all
    select * from completed_or_unmatched
    union all
    select * from exploded
    union all
    select * from counted_or_left_out
    union all
    select * from exported

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
