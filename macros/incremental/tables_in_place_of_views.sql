{#
    A view shows the current rows of the tables below it. Where the catalog has no views (LAKEHOUSE_VIEWS=table) a table
    replaces it, and its rows may be older than those it is made of.
#}


{# The model whose rows a view, or a table in its place, shows: follow the first model that each reads, down to one that
   keeps what it has read. #}
{% macro stored_behind(unique_id) %}
    {% set node = graph.nodes[unique_id] %}
    {% set before = node.depends_on.nodes | select('in', graph.nodes) | list %}
    {% do return(stored_behind(before[0]) if node.config.materialized in ('view', 'table') and before else node) %}
{% endmacro %}


{# Where this model finds what a source has landed: the source, or without views the staging table, which may be a batch
   behind. Its stored kind counts: it may have been built with another setting. #}
{% macro landed_in(source) %}
    {% for unique_id in model.depends_on.nodes if unique_id in graph.nodes %}
        {% set staged = table_in_place_of_view(graph.nodes[unique_id]) %}
        {% if staged %}{% do return(staged) %}{% endif %}
    {% endfor %}
    {% do return(source) %}
{% endmacro %}


{# Raise if a table in the place of a view, which the model reads, is older than a table that it is made of: rows that
   it lacks would be recorded as read. #}
{% macro require_current(unique_id) %}
    {% for between in graph.nodes[unique_id].depends_on.nodes
        if between in graph.nodes and graph.nodes[between].config.materialized in ('view', 'table') %}
        {% set stored = table_in_place_of_view(graph.nodes[between]) %}
        {% set built_at = last_written(graph.nodes[between]) if stored %}
        {% for below in graph.nodes[between].depends_on.nodes if stored and below in graph.nodes %}
            {% if last_written(graph.nodes[below], or_compacted=true) > built_at %}
                {% do exceptions.raise_compiler_error(
                    graph.nodes[between].name ~ ' is a table and older than ' ~ graph.nodes[below].name
                    ~ ', which it is made of. Build it, too: `dbt build --select +' ~ model.name ~ '`.'
                ) %}
            {% endif %}
        {% endfor %}
        {% do require_current(between) %}
    {% endfor %}
{% endmacro %}


{# The table that a model of a view layer is stored as; none if it is a view or missing. #}
{% macro table_in_place_of_view(node) %}
    {% if node.config.materialized not in ('view', 'table') %}{% do return(none) %}{% endif %}
    {% set relation = adapter.get_relation(node.database, node.schema, node.alias) %}
    {% do return(relation if relation and relation.is_table else none) %}
{% endmacro %}


{# When the rows of a model's table were last written, as a text that can be compared: empty without a table, or if only
   compactions have not expired; with or_compacted the time of the last of those. #}
{% macro last_written(node, or_compacted=false) %}
    {% set table = adapter.get_relation(node.database, node.schema, node.alias) %}
    {% if not table or table.is_view %}{% do return('') %}{% endif %}
    {% do return(run_query(
        "select coalesce(cast(coalesce(max(if(operation <> 'replace', committed_at, null))"
        ~ (', max(committed_at)' if or_compacted) ~ ") as string), '') from " ~ table ~ '.snapshots'
    ).rows[0][0]) %}
{% endmacro %}
