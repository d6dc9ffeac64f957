{# What the materialization does for a model that is built in parts: see
   macros/incremental/parts.sql. #}


{% macro replace_parts(target, sql) %}
    {% set columns = adapter.get_columns_in_relation(target) | map(attribute='name') | join(', ') %}
    {% call statement('main') %}
        insert into {{ target }}
        replace where {{ in_parts(config.require('partition_by'), named_parts(model)) }}
        select {{ columns }} from (
            {{ sql }}
        )
    {% endcall %}
{% endmacro %}


{# The parts that the model's table has. #}
{% macro known_parts() %}
    {% set table = load_relation(this) %}
    {% if not table_properties(table).get('lakehouse.table-id') %}{% do return([]) %}{% endif %}
    {% do return(run_query(
        'select distinct cast(partition.' ~ config.require('partition_by') ~ ' as string) from ' ~ table ~ '.partitions'
    ).columns[0].values() | list) %}
{% endmacro %}


{# Have the snapshot that is written next in this session say what made it:
   Iceberg writes it with the rows. lakehouse.sources has the snapshot of each
   table that the model reads. #}
{% macro record_provenance() %}
    {% set sources = {} %}
    {% for unique_id in model.depends_on.nodes if unique_id.startswith('model.') %}
        {% set node = graph.nodes[unique_id] %}
        {% set properties = table_properties(api.Relation.create(schema=node.schema, identifier=node.alias)) %}
        {% if 'current-snapshot-id' in properties %}
            {% do sources.update({node.schema ~ '.' ~ node.alias: properties['current-snapshot-id']}) %}
        {% endif %}
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
