{# The join condition that a version of a row was valid at a moment. The first known version also covers the time before
   it; of each key exactly one version is valid at any moment, and none when the moment is not known. #}
{% macro valid_as_of(moment, version) -%}
    {{ moment }} is not null
    and ({{ moment }} >= {{ version }}.valid_from or {{ version }}.is_first_version)
    and ({{ moment }} < {{ version }}.valid_to or {{ version }}.valid_to is null)
{%- endmacro %}
