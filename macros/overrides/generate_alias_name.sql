{# A relation is called as its model; those of schema ops without the prefix, which would stand there twice. #}
{% macro generate_alias_name(custom_alias_name=none, node=none) %}
    {{- custom_alias_name or node.name.removeprefix('ops_') -}}
{% endmacro %}
