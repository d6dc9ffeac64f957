{# Every key of the model before is in this one: deduplication removes rows, never keys. #}
{% test no_key_lost(model, column_name, from_model) %}
    select distinct upstream.{{ column_name }}
    from {{ from_model }} as upstream
    left anti join {{ model }} as kept
        on upstream.{{ column_name }} = kept.{{ column_name }}
    where upstream.{{ column_name }} is not null
{% endtest %}
