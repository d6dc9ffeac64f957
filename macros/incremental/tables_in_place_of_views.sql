{#
    A view shows the rows of the tables below it as they are now. Where the catalog has no views
    (LAKEHOUSE_VIEWS=table) a table is in its place, and its rows may be older than what it is made of.
#}


{# The model whose rows a view shows, or a table in the place of a view: the first that it reads, and so on until one
   keeps what it has read. #}
{% macro stored_behind(unique_id) %}
    {% set node = graph.nodes[unique_id] %}
    {% set before = node.depends_on.nodes | select('in', graph.nodes) | list %}
    {% do return(stored_behind(before[0]) if node.config.materialized in ('view', 'table') and before else node) %}
{% endmacro %}


{# Where this model finds what a source has landed: in the source, or in the table that staging is where there are no
   views, which may be a batch behind. What is stored counts, for it may have been built with another setting. #}
{% macro landed_in(relation) %}
    {% for unique_id in model.depends_on.nodes if unique_id in graph.nodes %}
        {% set staged = table_in_place_of_view(graph.nodes[unique_id]) %}
        {% for source_id in graph.nodes[unique_id].depends_on.nodes if staged and source_id in graph.sources %}
            {% set source = graph.sources[source_id] %}
            {% if (source.schema, source.identifier) == (relation.schema, relation.identifier) %}
                {% do return(staged) %}
            {% endif %}
        {% endfor %}
    {% endfor %}
    {% do return(relation) %}
{% endmacro %}


{# Raise if a table in the place of a view, which the model reads, is older than a table that it is made of: rows that
   it lacks would be noted as read. #}
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


{# The table that a node of a view layer is stored as, none if it is a view or not there. #}
{% macro table_in_place_of_view(node) %}
    {% if node.config.materialized not in ('view', 'table') %}{% do return(none) %}{% endif %}
    {% set found = adapter.get_relation(node.database, node.schema, node.alias) %}
    {% do return(found if found and found.is_table else none) %}
{% endmacro %}


{# When the rows of a node's table were last written, as a text that can be compared. Of a table whose writes have
   expired only compactions are known: empty, or when the last of them was. #}
{% macro last_written(node, or_compacted=false) %}
    {% set table = adapter.get_relation(node.database, node.schema, node.alias) %}
    {% if not table or table.is_view %}{% do return('') %}{% endif %}
    {% do return(run_query(
        "select coalesce(cast(coalesce(max(if(operation <> 'replace', committed_at, null))"
        ~ (', max(committed_at)' if or_compacted) ~ ") as string), '') from " ~ table ~ '.snapshots'
    ).rows[0][0]) %}
{% endmacro %}
