{# A row of ops_reconciliation: the rows on both sides of an equation, those on the right as a list that adds up. The
   subject is the model or topic whose rows are missing if they differ. #}
{% macro row_count_check(check_name, subject, left_rows, right_rows) %}
    select
        '{{ check_name }}' as check_name,
        '{{ subject.identifier }}' as subject,
        {{ left_rows }} as left_rows,
        {{ right_rows | join(' + ') }} as right_rows
{% endmacro %}


{# A figure of a relation's rows as one number, their count if it names no other. #}
{% macro count_rows(relation, where='true', figure='count(*)') -%}
    (select {{ figure }} from {{ relation }} where {{ where }})
{%- endmacro %}
