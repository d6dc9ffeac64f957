{# The condition that a payment was made at its order or up to 96 hours after it, both ends included. The last instants
   of the type have no such end: NULL. #}
{% macro is_paid_in_time(paid_at, ordered_at) -%}
    {{ paid_at }} between {{ ordered_at }} and try_add({{ ordered_at }}, interval 96 hours)
{%- endmacro %}
