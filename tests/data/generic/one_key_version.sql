{# No exported week has pseudonyms of two masking keys: the column is the key's version. #}
{% test one_key_version(model, column_name, week) %}
    select
        {{ week }},
        count(distinct {{ column_name }}) as key_versions
    from {{ model }}
    where {{ in_exported_weeks(week) }}
    group by {{ week }}
    having count(distinct {{ column_name }}) > 1
{% endtest %}
