{# No column is NULL that the contract declares not NULL, and none has other values than
   `meta.allowed_values`: all columns in one scan. Iceberg enforces no constraint of dbt's. #}
{% test keeps_contract(model) %}
    with breaches as (

        select explode(array_compact(array(
            {% for name, column in (graph.nodes[context['model'].attached_node].columns if execute else {}).items() %}
            {% if column.constraints | selectattr('type', 'equalto', 'not_null') | list %}
            if({{ name }} is null, '{{ name }} is NULL', null),
            {% endif %}
            {% if column.config.meta.allowed_values %}
            if(
                {{ name }} not in ('{{ column.config.meta.allowed_values | join("', '") }}'),
                '{{ name }} has another value', null
            ),
            {% endif %}
            {% endfor %}
            null
        ))) as breach
        from {{ model }}

    )

    select
        breach,
        count(*) as row_count
    from breaches
    group by breach
{% endtest %}
