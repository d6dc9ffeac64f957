{# No column is NULL that the contract says is not, and none has other values than
   `meta.allowed_values`: all columns in one scan. Iceberg enforces no constraint of dbt's. #}
{% test keeps_contract(model) %}
    {%- set breaches = [] %}
    {%- set tested = context['model'].attached_node %}
    {%- for name, column in (graph.nodes[tested].columns if execute else {}).items() %}
        {%- if column.constraints | selectattr('type', 'equalto', 'not_null') | list %}
            {%- do breaches.append('if(' ~ name ~ " is null, '" ~ name ~ " is NULL', null)") %}
        {%- endif %}
        {%- if column.config.meta.allowed_values %}
            {%- set allowed = "('" ~ column.config.meta.allowed_values | join("', '") ~ "')" %}
            {%- do breaches.append('if(' ~ name ~ ' not in ' ~ allowed ~ ", '" ~ name ~ " has another value', null)") %}
        {%- endif %}
    {%- endfor %}
    with breaches as (

        select explode(array_compact(array({{ breaches | join(', ') or 'null' }}))) as breach
        from {{ model }}

    )

    select
        breach,
        count(*) as row_count
    from breaches
    group by breach
{% endtest %}
