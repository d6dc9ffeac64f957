{#
    A generic test of a model that a run builds in parts looks at the parts of
    its own run: other ones are as they were exported, and their sources may
    have changed since. dbt 1.11 knows no condition that follows the run's vars
    and time: config.where is rendered when dbt parses.
#}
{% macro spark__get_where_subquery(relation) %}
    {% set conditions = [] %}
    {% set tested = graph.nodes.get(model.attached_node) if execute %}
    {% if tested and tested.config.parts %}
        {% do conditions.append(in_parts(tested.config.partition_by, named_parts(tested))) %}
    {% endif %}
    {% if config.get('where') %}
        {# `from t where (x)` is an alias with a column to Spark: brackets only behind another condition #}
        {% do conditions.append('(' ~ config.get('where') ~ ')' if conditions else config.get('where')) %}
    {% endif %}
    {% if not conditions %}{% do return(relation) %}{% endif %}
    {% do return('(select * from ' ~ relation ~ ' where ' ~ conditions | join(' and ') ~ ') as dbt_subquery') %}
{% endmacro %}
