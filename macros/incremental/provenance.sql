{# Add to the summary of the snapshot that this session writes next what made it: Iceberg commits it with the rows.
   lakehouse.sources has the snapshot of each table that the model reads. #}
{% macro record_provenance() %}
    {% set names, sources = [], {} %}
    {% for unique_id in model.depends_on.nodes if unique_id.startswith('model.') %}
        {% do names.append(graph.nodes[unique_id].schema ~ '.' ~ graph.nodes[unique_id].alias) %}
    {% endfor %}
    {% for name, table in describe_many(names).items() if not table.is_view %}
        {% do sources.update({name: table.snapshot}) %}
    {% endfor %}
    {% for name, text in {
        'invocation-id': invocation_id,
        'git-commit': env_var('LAKEHOUSE_GIT_COMMIT', ''),
        'small-group-threshold': var('small_group_threshold', ''),
        'sources': tojson(sources, sort_keys=true),
    }.items() %}
        {% do run_query('set `spark.sql.iceberg.snapshot-property.lakehouse.' ~ name ~ '`=`' ~ text ~ '`') %}
    {% endfor %}
{% endmacro %}
