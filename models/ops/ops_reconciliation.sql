{{ config(materialized='table') }}

with retail_checks as (

    {# The events of the exported weeks, by the moment that a week counts them by. #}
    {% set is_of_weeks = in_exported_weeks(iso_week('reporting_at')) %}
    select
        'payments = clean + quarantined' as check_name,
        'int_payments_quarantined' as subject,
        (select count(*) from {{ ref('int_payments_deduplicated') }}) as left_rows,
        count_if(has_valid_confirmation_code)
        + (select count(*) from {{ ref('int_payments_quarantined') }}) as right_rows
    from {{ ref('int_payments_masked') }}
    union all
    select
        'payments = completed + unmatched' as check_name,
        'fct_completed_orders' as subject,
        count(*) as left_rows,
        (select count(*) from {{ ref('fct_completed_orders') }})
        + (select count(*) from {{ ref('int_payments_unmatched') }}) as right_rows
    from {{ ref('int_payments_deduplicated') }}
    union all
    {# A payment in both lists can hide one that is in neither: so the union is compared, too. #}
    select
        'payments = completed or unmatched' as check_name,
        'fct_completed_orders' as subject,
        (select count(*) from {{ ref('int_payments_deduplicated') }}) as left_rows,
        count(*) as right_rows
    from (
        select order_id from {{ ref('fct_completed_orders') }}
        union
        select order_id from {{ ref('int_payments_unmatched') }}
    )
    union all
    select
        'trades = fct_trades' as check_name,
        'fct_trades' as subject,
        count(*) as left_rows,
        (select count(*) from {{ ref('fct_trades') }}) as right_rows
    from {{ ref('int_trades_deduplicated') }}
    union all
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
    union all
    {# An event of the week is in its file, or listed with the reason why it is not. #}
    select
        'payments of the weeks = export + unmatched + without a week' as check_name,
        'exp_weekly__completed_orders' as subject,
        (select count_if({{ is_of_weeks }}) from {{ ref('int_payments_masked') }}) as left_rows,
        (
            select count(*)
            from {{ ref('exp_weekly__completed_orders') }} as exported
            where {{ in_exported_weeks('exported.paid_week') }}
        )
        + (select count_if({{ is_of_weeks }}) from {{ ref('int_payments_unmatched') }})
        + count_if(paid_week is null and {{ is_of_weeks }}) as right_rows
    from {{ ref('fct_completed_orders') }}
    union all
    select
        'order lines of the weeks = export + excluded' as check_name,
        'exp_weekly__order_lines' as subject,
        (select count_if({{ is_of_weeks }}) from {{ ref('int_store_order_lines_exploded') }})
        + (select count_if({{ is_of_weeks }}) from {{ ref('int_order_items_priced') }})
            as left_rows,
        (
            select count(*)
            from {{ ref('exp_weekly__order_lines') }} as exported
            where {{ in_exported_weeks('exported.ordered_week') }}
        )
        + count_if(not (has_order and is_event_time_valid) and {{ is_of_weeks }}) as right_rows
    from {{ ref('fct_order_lines_excluded') }}
    union all
    select
        'items of the weeks = export + excluded + without a week' as check_name,
        'exp_weekly__product_sales' as subject,
        count_if({{ is_of_weeks }}) as left_rows,
        (
            select count(*)
            from {{ ref('exp_weekly__product_sales') }} as exported
            where {{ in_exported_weeks('exported.ordered_week') }}
        )
        + count_if(exclusion_reason is not null and {{ is_of_weeks }})
        + (
            select count(*)
            from {{ ref('fct_product_sales') }} as sales
            where
                sales.ordered_week is null
                and sales.order_item_id in (
                    select order_items.order_item_id
                    from {{ ref('int_order_items_priced') }} as order_items
                    where {{ is_of_weeks }}
                )
        ) as right_rows
    from {{ ref('int_order_items_priced') }}
    {# Every line of every channel is in a dataset's figures, or listed with what it lacks. #}
    {% for mart, dimension in [
        ('fct_customer_activity_weekly', 'customer'), ('fct_product_demand_weekly', 'product')
    ] %}
    union all
    select
        'order lines = counted + excluded' as check_name,
        '{{ mart }}' as subject,
        (select count(*) from {{ ref('int_store_order_lines_exploded') }})
        + (select count(*) from {{ ref('int_order_items_priced') }}) as left_rows,
        (select coalesce(sum(mart.line_count), 0) from {{ ref(mart) }} as mart)
        + count_if(not (has_order and is_event_time_valid and has_{{ dimension }})) as right_rows
    from {{ ref('fct_order_lines_excluded') }}
    union all
    select
        'order lines of the weeks = counted + excluded' as check_name,
        '{{ mart }}' as subject,
        (select count_if({{ is_of_weeks }}) from {{ ref('int_store_order_lines_exploded') }})
        + (select count_if({{ is_of_weeks }}) from {{ ref('int_order_items_priced') }})
            as left_rows,
        (
            select coalesce(sum(mart.line_count), 0)
            from {{ ref(mart) }} as mart
            where {{ in_exported_weeks('mart.ordered_week') }}
        )
        + count_if(
            not (has_order and is_event_time_valid and has_{{ dimension }}) and {{ is_of_weeks }}
        ) as right_rows
    from {{ ref('fct_order_lines_excluded') }}
    {% endfor %}

),

checks as (

    {# Topics land while dbt runs: both sides of a check stop at the batch that was read last. #}
    {% call(topic) every_topic() %}
    {% set deduplicated = ref(topic.deduplicated) %}
    {% set until = read_until(table_properties(deduplicated)) %}
    select
        'landed = staged + dead letters + erased + dropped tombstones' as check_name,
        '{{ topic.table }}' as subject,
        count(*) as left_rows,
        (select count(*) from {{ ref(topic.staged) }} where ingest_batch <= {{ until }})
        {% if topic.keeps_tombstones %}
        + count(decode_error) as right_rows
        {% else %}
        + count(*) - count(kafka_raw_value) filter (where decode_error is null) as right_rows
        {% endif %}
    from {{ source(topic.source, topic.table) }}
    where ingest_batch <= {{ until }}
    union all
    select
        'staged = deduplicated + removed' as check_name,
        '{{ deduplicated.identifier }}' as subject,
        count(*) as left_rows,
        (
            select count(*)
            from {{ deduplicated }} as kept
            where {{ 'kept.valid_to is null' if topic.has_versions else 'true' }}
        )
        + count(*) - count(distinct {{ topic.key }}) as right_rows
    from {{ ref(topic.staged) }}
    where ingest_batch <= {{ until }}
    union all
    {% endcall %}
    select * from retail_checks
    union all
    {% call(dataset) every_dataset() %}
    select
        'mart rows of the weeks = export' as check_name,
        'exp_weekly__{{ dataset.name }}' as subject,
        count(*) as left_rows,
        (
            select count(*)
            from {{ ref('exp_weekly__' ~ dataset.name) }}
            where {{ in_exported_weeks(dataset.week) }}
        ) as right_rows
    from {{ ref(dataset.mart) }}
    where {{ in_exported_weeks(dataset.week) }}
    {% endcall %}

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
