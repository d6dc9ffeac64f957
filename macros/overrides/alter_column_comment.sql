{#
    dbt-spark 1.11 alters one column at a time: one Iceberg metadata version
    per described column and run. This is one statement for all of them.
#}
{% macro spark__alter_column_comment(relation, column_dict) %}
    {% set changes = [] %}
    {% for name, column in column_dict.items() if column.description %}
        {% do changes.append(
            name ~ " comment '"
            ~ column.description | trim | replace('\\', '\\\\') | replace("'", "\\'")
            ~ "'"
        ) %}
    {% endfor %}
    {% if changes %}
        {% do run_query(
            'alter table ' ~ relation ~ ' alter column ' ~ changes | join(', ')
        ) %}
    {% endif %}
{% endmacro %}
