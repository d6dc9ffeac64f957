{# A spelling is in the form in which models look it up: cleaned as by staging, and in lower case.
   Another form matches no record. #}
{% test normal_spelling(model, column_name) %}
    select {{ column_name }}
    from {{ model }}
    where {{ column_name }} is distinct from lower({{ clean_text(column_name) }})
{% endtest %}
