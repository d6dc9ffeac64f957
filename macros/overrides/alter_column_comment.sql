{# dbt-spark 1.11 alters one column at a time: one Iceberg metadata version per described column and run. This is one
   statement for those that differ; a table that was just created or replaced has no comment. #}
{% macro spark__alter_column_comment(relation, column_dict) %}
    {% set description = described(relation.schema ~ '.' ~ relation.identifier) %}
    {% set stored, changes = description.comments if model.config.materialized == 'incremental' else {}, [] %}
    {% for name, column in column_dict.items()
        if column.description and column.description | trim != stored.get(name) %}
        {% set comment = column.description | trim | replace('\\', '\\\\') | replace("'", "\\'") %}
        {% do changes.append(name ~ " comment '" ~ comment ~ "'") %}
    {% endfor %}
    {% if changes %}{% do run_query('alter table ' ~ relation ~ ' alter column ' ~ changes | join(', ')) %}{% endif %}
{% endmacro %}
