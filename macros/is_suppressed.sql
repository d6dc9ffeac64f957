{#
    The small-group rule, in one place: whether a cell of an aggregate is too
    small to publish. A cell with fewer persons than var small_group_threshold
    is. If it is the only one among the cells that share a total, the total
    would give it away: the next smallest cell is held back as well.

    `key` decides between cells with as many persons, so that a rerun holds
    back the same ones.
#}
{% macro is_suppressed(persons, total, key) -%}
    {%- set threshold = small_group_threshold() -%}
    (
        {{ persons }} < {{ threshold }}
        or (
            count_if({{ persons }} < {{ threshold }}) over (partition by {{ total }}) = 1
            and row_number() over (partition by {{ total }} order by {{ persons }}, {{ key }}) = 2
        )
    )
{%- endmacro %}


{# Var small_group_threshold; a compilation error when it is no number, which would hold nothing back. #}
{% macro small_group_threshold() %}
    {% set threshold = var('small_group_threshold') | string %}
    {% if not modules.re.fullmatch('[1-9][0-9]*', threshold) %}
        {% do exceptions.raise_compiler_error(
            "var small_group_threshold: '" ~ threshold ~ "' is not a whole number from 1. Give the fewest persons"
            ~ ' that a published figure may be about, for instance 10.'
        ) %}
    {% endif %}
    {% do return(threshold | int) %}
{% endmacro %}
