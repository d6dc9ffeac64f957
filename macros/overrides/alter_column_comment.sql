{# dbt-spark 1.11 alters one column at a time: one Iceberg metadata version per described column and run. This is one
   statement for all of them. #}
{% macro spark__alter_column_comment(relation, column_dict) %}
    {% set changes = [] %}
    {% for name, column in column_dict.items() if column.description %}
        {% set comment = column.description | trim | replace('\\', '\\\\') | replace("'", "\\'") %}
        {% do changes.append(name ~ " comment '" ~ comment ~ "'") %}
    {% endfor %}
    {% if changes %}{% do run_query('alter table ' ~ relation ~ ' alter column ' ~ changes | join(', ')) %}{% endif %}
{% endmacro %}
