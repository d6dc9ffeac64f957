{# No column is NULL that the contract declares not NULL, and none has other values than
   `meta.allowed_values`: all columns in one scan. Iceberg enforces no constraint of dbt's. #}
{% test keeps_contract(model) %}
    with breaches as (

        select explode(array_compact(array(
            {{ contract_breaches(context['model'].attached_node) }}
        ))) as breach
        from {{ model }}

    )

    select
        breach,
        count(*) as row_count
    from breaches
    group by breach
{% endtest %}
