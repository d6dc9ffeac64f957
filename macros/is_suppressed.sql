{#
    The small-group rule, in one place: whether a cell of an aggregate is too
    small to publish. A cell with fewer persons than var small_group_threshold
    is. What the cells that share a total lack would give small ones away, so
    the next smallest cell is held back with them: its persons alone reach the
    threshold. Those of small cells do not add up to it for sure, because one
    person may be in several cells.

    `key` decides between cells with as many persons, so that a rerun holds
    back the same ones.
#}
{% macro is_suppressed(persons, total, key) -%}
    {%- set small = 'count_if(' ~ persons ~ ' < ' ~ small_group_threshold() ~ ') over (partition by ' ~ total ~ ')' -%}
    (
        {{ small }} > 0
        and row_number() over (partition by {{ total }} order by {{ persons }}, {{ key }}) <= {{ small }} + 1
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
