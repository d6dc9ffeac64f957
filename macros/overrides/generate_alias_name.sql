{# The alias of a model is its name; models of schema ops drop the prefix, which the schema repeats. #}
{% macro generate_alias_name(custom_alias_name=none, node=none) %}
    {{- custom_alias_name or node.name.removeprefix('ops_') -}}
{% endmacro %}
