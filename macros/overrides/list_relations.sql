{# dbt-spark 1.11 asks Iceberg table by table (one broken table aborts the run) and never lists views, so that view <->
   table changes fail and views are missing from the docs. #}
{% macro spark__list_relations_without_caching(relation) %}
    {% set listed = [] %}
    {% for row in run_query('show tables in ' ~ relation.schema) %}
        {% do listed.append([relation.schema, row[1], false, 'Type: TABLE\nProvider: iceberg\n']) %}
    {% endfor %}
    {% for row in run_query('show views in ' ~ relation.schema) %}
        {% do listed.append([relation.schema, row[1], false, 'Type: VIEW\n']) %}
    {% endfor %}
    {% do return(listed) %}
{% endmacro %}
