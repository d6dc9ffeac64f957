{# The schemas are the layers, with the same names in every environment. #}
{% macro generate_schema_name(custom_schema_name, node) %}
    {{- custom_schema_name or target.schema -}}
{% endmacro %}
