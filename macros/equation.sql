{# A row of ops_reconciliation: the rows on the left of an equation, and those on its right, which is a list of what
   they add up from. The subject is the model or topic whose rows are missing if they differ. #}
{% macro equation(check_name, subject, left_rows, right_rows) %}
    select
        '{{ check_name }}' as check_name,
        '{{ subject.identifier }}' as subject,
        {{ left_rows }} as left_rows,
        {{ right_rows | join(' + ') }} as right_rows
{% endmacro %}


{# A figure of a relation's rows as one number; how many they are if no other is named. #}
{% macro rows_of(relation, where='true', figure='count(*)') -%}
    (select {{ figure }} from {{ relation }} where {{ where }})
{%- endmacro %}
