{#
    What the result of a node follows from: its SQL, config and engine, and the relations that its SQL names, also
    below views. They are found in compiled text by pattern, because dbt does not know all of them
    (every_stored_table): a false match only repeats work. tests/end_to_end/test_node_states.py compares them with a parser's.
#}


{# The note of a node before it runs, or the reason why it is never skipped, as a text. #}
{% macro new_note(sql) %}
    {% set states, inputs = node_states(), {} %}
    {% if not states.is_noting %}{% do return('this command notes nothing') %}{% endif %}
    {% if model.resource_type == 'test' and should_store_failures() %}{% do return('it stores failures') %}{% endif %}
    {% if model.resource_type == 'seed' and model.checksum.name != 'sha256' %}
        {% do return('its file is too large to compare') %}
    {% endif %}
    {% set code = tojson({
        'version': 1, 'engine': states.engine, 'sql': sql, 'name': this | string, 'config': model.config,
        'description': model.description, 'columns': model.columns, 'file': model.checksum,
    }, sort_keys=true) %}
    {% if code is none %}{% do return('its config cannot be compared') %}{% endif %}
    {% set scanned = scan(sql) %}
    {# What is new decides whether a model that follows tables runs, and not the rows that its SQL would give. #}
    {% set unknown = (scanned.volatile if not model.config.follows)
        or add_inputs(inputs, scanned.relations, schemas_only=model.config.materialized == 'view') %}
    {% if scanned.reads_key %}{% do inputs.update({'masking key': states.key_version}) %}{% endif %}
    {% if inputs.get('masking key') == '' %}{% do return('the masking key was not checked') %}{% endif %}
    {% do return(unknown or {'fingerprint': local_md5(code), 'inputs': inputs}) %}
{% endmacro %}


{# Add relations, and those below views, to the inputs of a note; the reason if one cannot be identified.
   A view keeps the columns of its tables, so it follows from their columns alone. #}
{% macro add_inputs(inputs, relations, schemas_only) %}
    {% set states = node_states() %}
    {% for name in relations if name not in inputs %}
        {% set description = described(name) %}
        {% do inputs.update({name: (description.schema if schemas_only else description.content) if description}) %}
        {% if not inputs[name] %}{% do return(name ~ ' is no Iceberg table or view') %}{% endif %}
        {% if description.is_view %}
            {% if description.marker not in states.views %}
                {% do return('the view ' ~ name ~ ' is not as a noted build left it') %}
            {% endif %}
            {% if description.scanned.reads_key %}{% do inputs.update({'masking key': states.key_version}) %}{% endif %}
            {% set unknown = description.scanned.volatile
                or add_inputs(inputs, description.scanned.relations, schemas_only) %}
            {% if unknown %}{% do return(unknown) %}{% endif %}
        {% endif %}
    {% endfor %}
    {% do return('') %}
{% endmacro %}


{# The inputs that differ from those of the stored note, as a text. #}
{% macro changed_inputs(stored, note) %}
    {% set before, changed = fromjson(stored.inputs or '{}'), [] %}
    {% for name in (before | list + note.inputs | list) | unique | sort
        if before.get(name) != note.inputs.get(name) %}
        {% do changed.append(name) %}
    {% endfor %}
    {% do return(changed | join(', ')) %}
{% endmacro %}


{# The relations of the project that SQL names, whether it reads the masking key, and in `volatile` the reason why its
   result can change while they stay as they are. #}
{% macro scan(sql) %}
    {% set text, relations = sql | lower | replace('`', ''), [] %}
    {% for schema, name in modules.re.findall('(?=\\b([a-z_]\\w*)[.]([a-z_]\\w*))', text) | unique
        if schema in project_schemas() and adapter.get_relation(none, schema, name) %}
        {% do relations.append(schema ~ '.' ~ name) %}
    {% endfor %}
    {% set match = modules.re.search(volatile_sql(), modules.re.sub('extract[(]\\s*\\w+\\s+from', '', text)) %}
    {% do return({
        'relations': relations | sort,
        'reads_key': 'pii_pads' in text,
        'volatile': 'its SQL has `' ~ match.group().split() | join(' ') ~ '`' if match else '',
    }) %}
{% endmacro %}


{# A pattern of SQL whose result does not follow from the tables that it names, or that names others than those of the
   project: functions of time, chance and session, metadata tables, former snapshots. #}
{% macro volatile_sql() %}
    {% do return([
        '\\b(now|curdate|rand|randn|random|randstr|uniform|uuid|shuffle|user|version|reflect|java_method|try_reflect'
        ~ '|monotonically_increasing_id|spark_partition_id|input_file_\\w+)\\s*[(]',
        '\\bunix_timestamp\\s*[(]\\s*[)]|\\b(localtimestamp|session_user|tablesample)\\b|[$][{]|\\bsystem[.]',
        '\\bcurrent_(date|time|timestamp|timezone|user|catalog|database|schema)\\b',
        '\\w[.]\\w+[.](files|data_files|delete_files|position_deletes|snapshots|history|refs|manifests|partitions|entries'
        ~ '|metadata_log_entries|all_\\w+|branch_\\w+|tag_\\w+|snapshot_id_\\w+|at_timestamp_\\w+)\\b',
        '\\b(version|timestamp|system_time|system_version)\\s+as\\s+of\\b',
        '\\b(from|join)\\s+(?!(' ~ project_schemas() | join('|') ~ '|spark_catalog[.]default)[.])[a-z_]\\w*[.]',
    ] | join('|')) %}
{% endmacro %}


{# The schemas of the project's relations. #}
{% macro project_schemas() %}
    {% set states = node_states() %}
    {% if not states.schemas %}
        {% set nodes = graph.nodes.values() | list + graph.sources.values() | list %}
        {% do states.update({'schemas': nodes | map(attribute='schema') | unique | sort}) %}
    {% endif %}
    {% do return(states.schemas) %}
{% endmacro %}
