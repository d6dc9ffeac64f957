{# Both sides of each check are equal. After a command that built only some of the models behind
   them nothing is compared: new rows are in one table and not yet in another. `dbt test` compares
   what there is. #}
{% test adds_up(model, column_name) %}
    {%- set not_built = [] %}
    {%- set behind = [] %}
    {%- if execute and flags.WHICH != 'test' %}
        {%- set behind = lineage_of(context['model'].attached_node) %}
    {%- endif %}
    {%- for node_id in behind %}
        {%- if node_id.startswith('model.') and node_id not in selected_resources %}
            {%- do not_built.append(node_id) %}
        {%- endif %}
    {%- endfor %}
    select *
    from {{ model }}
    where
        {{ column_name }} <> 0
        and {{ 'false' if not_built else 'true' }}
{% endtest %}
