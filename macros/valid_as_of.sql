{#
    The join condition that a version of a row was valid at a moment. The first
    known version also stands for the time before it; of each key exactly one
    version is valid at any moment.
#}
{% macro valid_as_of(moment, version) -%}
    ({{ moment }} >= {{ version }}.valid_from or {{ version }}.is_first_version)
    and ({{ moment }} < {{ version }}.valid_to or {{ version }}.valid_to is null)
{%- endmacro %}
