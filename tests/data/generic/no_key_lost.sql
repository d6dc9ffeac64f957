{# Every key of the model before is in this one: deduplication removes rows, never keys. What landed
   since is not asked for. #}
{% test no_key_lost(model, column_name, from_model) %}
    {%- set until = read_until(table_properties(model)) if execute %}
    select distinct upstream.{{ column_name }}
    from {{ from_model }} as upstream
    left anti join {{ model }} as downstream
        on upstream.{{ column_name }} = downstream.{{ column_name }}
    where
        upstream.{{ column_name }} is not null
        and {{ 'upstream.ingest_batch <= ' ~ until if until else 'true' }}
{% endtest %}
