{#
    What a table or view is, by statements that start no Spark job. A description has hashes and what they are made of:
    schema, of a table's columns; content, of these and the snapshot; marker, of all that Spark describes but for the tags of
    tested weeks, which are set at the end of a run, and what a fork of the lake changes. Of a view all three are a hash
    of its text.
#}


{# The description of a relation as this command saw it first, or after its last write; none if it is missing. The
   number of writes is in the key, so what another thread asks before a write is not mistaken for what is after it. #}
{% macro described(name, created=none) %}
    {% set states = node_states() %}
    {% set key = name ~ ' ' ~ states.written.count(name) %}
    {% if key not in states.described %}{% do states.described.update({key: describe(name, created)}) %}{% endif %}
    {% do return(states.described[key]) %}
{% endmacro %}


{# The description of a relation as it is now. dbt does not know a relation yet that the same node has `created`. #}
{% macro describe(name, created=none, version=none) %}
    {% set relation = created or adapter.get_relation(none, name.split('.')[0], name.split('.')[1]) %}
    {% if not relation %}{% do return(none) %}{% endif %}
    {% if relation.is_view %}
        {% set text = run_query('show create table ' ~ relation).rows[0][0] %}
        {% set text = modules.re.sub("'location' = '[^']*'", '', text) %}
        {% set hash = local_md5(text) %}
        {% do return({'is_view': true, 'schema': hash, 'content': hash, 'marker': hash, 'text': text}) %}
    {% endif %}
    {% set schema_id = (version or versions_of([name]).get(name, '')).partition('/')[0] %}
    {% set columns, properties, others, section = {}, {}, [], namespace(has_columns=true, rows=none) %}
    {% set excluded = ('lakehouse.sql.', 'lakehouse.fork-of', 'gc.enabled', 'write.metadata.delete-after-commit') %}
    {% for title, text, comment in run_query('describe extended ' ~ relation).rows %}
        {% set section.has_columns = section.has_columns and title and not title.startswith('#') %}
        {% if section.has_columns %}
            {% do columns.update({title: {'type': text, 'comment': comment or ''}}) %}
        {% elif title == 'Table Properties' %}
            {# a value may hold commas #}
            {% for pair in modules.re.split(',(?=[A-Za-z][\\w.-]*=)', text[1:-1]) %}
                {% do properties.update({pair.partition('=')[0]: pair.partition('=')[2]}) %}
                {% if not pair.startswith(excluded) %}{% do others.append(pair) %}{% endif %}
            {% endfor %}
        {% elif title == 'Statistics' %}
            {% set section.rows = (modules.re.findall('(\\d+) rows', text) or [none])[0] %}
        {% elif title != 'Location' %}
            {% do others.append([title, text, comment]) %}
        {% endif %}
    {% endfor %}
    {% set types, snapshot = [schema_id], properties.get('current-snapshot-id', 'none') %}
    {% for name, column in columns.items() %}{% do types.append(name ~ ' ' ~ column.type) %}{% endfor %}
    {% do return({
        'is_view': false, 'columns': columns, 'properties': properties, 'snapshot': snapshot, 'rows': section.rows,
        'version': schema_id ~ '/' ~ snapshot,
        'schema': local_md5(types | join('\n')) if schema_id,
        'content': local_md5(snapshot ~ '\n' ~ types | join('\n')) if schema_id,
        'marker': local_md5(tojson([types, columns, others])),
    }) %}
{% endmacro %}


{# The ids of schema and snapshot of Iceberg tables, as <schema>/<snapshot>, from a plan that is not run; empty if one
   table is missing. A column that was dropped and added again has its former name and type, and no values, while the
   snapshot stays. #}
{% macro versions_of(tables) %}
    {% if not tables %}{% do return({}) %}{% endif %}
    {% set versions = {} %}
    {% set plan = run_query('explain select 1 from ' ~ tables | join(' union all select 1 from ')).rows[0][0] %}
    {% set pattern = 'IcebergScan[(]table=\\w+[.](\\w+[.]\\w+), schemaId=(\\d+), snapshotId=(\\w+),' %}
    {% for name, schema_id, snapshot in modules.re.findall(pattern, plan) %}
        {% do versions.update({name: schema_id ~ '/' ~ snapshot}) %}
    {% endfor %}
    {% do return(versions) %}
{% endmacro %}


{# The relations that are missing, or cannot be read. #}
{% macro broken_of(names) %}
    {% if not names %}{% do return([]) %}{% endif %}
    {% set script = ["begin declare broken string default '';"] %}
    {% for name in names %}
        {% do script.append(
            "begin declare exit handler for sqlexception set broken = concat(broken, ' " ~ name ~ "');"
            ~ ' describe ' ~ name ~ '; end;'
        ) %}
    {% endfor %}
    {% do return(run_query(script | join(' ') ~ ' select broken; end').rows[0][0].split()) %}
{% endmacro %}


{# The descriptions of relations as they are now, by name. One that is missing or cannot be read has none; a table that
   is as it was described last is not described again. #}
{% macro describe_many(names) %}
    {% set states, tables, views, descriptions = node_states(), [], [], {} %}
    {% for name in names | unique %}
        {% set relation = adapter.get_relation(none, name.split('.')[0], name.split('.')[1]) %}
        {% if relation %}{% do (views if relation.is_view else tables).append(name) %}{% endif %}
    {% endfor %}
    {% set versions = versions_of(tables) %}
    {% set is_complete = versions | length == tables | length %}
    {% set broken = broken_of(views if is_complete else views + tables) %}
    {% set versions = versions if is_complete else versions_of(tables | reject('in', broken) | list) %}
    {% for name in tables + views if name not in broken %}
        {% set seen = states.described.get(name ~ ' ' ~ states.written.count(name)) %}
        {% set is_as_seen = seen and seen.version and seen.version == versions.get(name) %}
        {% do descriptions.update({name: seen if is_as_seen else describe(name, version=versions.get(name))}) %}
    {% endfor %}
    {% do return(descriptions) %}
{% endmacro %}
