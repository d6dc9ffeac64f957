{# dbt 1.11 asks once per schema of the project, each time in another connection. #}
{% macro spark__list_schemas(database) %}
    {% set states = node_states() %}
    {% if not states.databases %}{% do states.update({'databases': run_query('show databases')}) %}{% endif %}
    {% do return(states.databases) %}
{% endmacro %}
