{# An expression per promise of a model's contract: what a row breaks, NULL if nothing. #}
{% macro contract_breaches(tested) %}
    {%- set breaches = [] %}
    {%- for name, column in (graph.nodes[tested].columns if execute else {}).items() %}
        {%- if column.constraints | selectattr('type', 'equalto', 'not_null') | list %}
            {%- do breaches.append('if(' ~ name ~ " is null, '" ~ name ~ " is NULL', null)") %}
        {%- endif %}
        {%- if column.config.meta.allowed_values %}
            {%- set allowed = "('" ~ column.config.meta.allowed_values | join("', '") ~ "')" %}
            {%- do breaches.append('if(' ~ name ~ ' not in ' ~ allowed ~ ", '" ~ name ~ " has another value', null)") %}
        {%- endif %}
    {%- endfor %}
    {{- breaches | join(', ') or 'null' -}}
{% endmacro %}
