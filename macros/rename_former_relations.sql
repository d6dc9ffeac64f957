{#
    Runs before every command that writes: the tables and views of schema ops
    were called as their models, such as ops.ops_ingest_batches. In a lake of
    then tables go on under the names that they have now; a view, whose text
    has those names in it, is dropped, and the build makes it anew.
#}
{% macro rename_former_relations() %}
    {% if not execute %}{% do return('') %}{% endif %}
    {% for node in graph.nodes.values()
        if node.resource_type == 'model' and node.name.startswith('ops_') and node.alias != node.name %}
        {% set former = adapter.get_relation(node.database, node.schema, node.name) %}
        {% if former and former.is_view %}
            {% do adapter.drop_relation(former) %}
        {% elif former and not adapter.get_relation(node.database, node.schema, node.alias) %}
            {% do adapter.rename_relation(former, api.Relation.create(schema=node.schema, identifier=node.alias)) %}
        {% endif %}
    {% endfor %}
{% endmacro %}
