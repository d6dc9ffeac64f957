{# No two rows agree in all of these columns. NULL counts as a value. #}
{% test unique_together(model, columns) %}
    select
        {{ columns | join(', ') }},
        count(*) as row_count
    from {{ model }}
    group by {{ columns | join(', ') }}
    having count(*) > 1
{% endtest %}
