{# A generic test of a model that a run builds in partitions reads those of its run: the others are as they were
   exported, and their sources may have changed since. dbt 1.11 has no condition that follows the run's vars and time:
   it renders config.where when it parses. #}
{% macro spark__get_where_subquery(relation) %}
    {% set conditions = [] %}
    {% set tested = graph.nodes.get(model.attached_node) if execute %}
    {% if tested and tested.config.partitions %}
        {% do conditions.append(written_by_run(tested)) %}
    {% endif %}
    {% if config.get('where') %}
        {# `from t where (x)` is an alias with a column to Spark: brackets only behind another condition #}
        {% do conditions.append('(' ~ config.get('where') ~ ')' if conditions else config.get('where')) %}
    {% endif %}
    {% if not conditions %}{% do return(relation) %}{% endif %}
    {% do return('(select * from ' ~ relation ~ ' where ' ~ conditions | join(' and ') ~ ') as dbt_subquery') %}
{% endmacro %}
