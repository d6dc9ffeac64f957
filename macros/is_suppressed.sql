{#
    The small-group rule: whether a cell of an aggregate is too small to publish, because it has fewer persons than var
    small_group_threshold. What the published cells of a total lack would reveal a small one, so the next smallest cell
    is suppressed with it: its persons alone reach the threshold. Those of small cells may not add up to it, because one
    person may be in several cells.

    `key` decides between cells with as many persons, so that a rerun suppresses the same ones.
#}
{% macro is_suppressed(persons, total, key) -%}
    {%- set small = 'count_if(' ~ persons ~ ' < ' ~ small_group_threshold() ~ ') over (partition by ' ~ total ~ ')' -%}
    (
        {{ small }} > 0
        and row_number() over (partition by {{ total }} order by {{ persons }}, {{ key }}) <= {{ small }} + 1
    )
{%- endmacro %}


{# Var small_group_threshold; a compilation error unless it is a whole number from 1: others would suppress nothing. #}
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
