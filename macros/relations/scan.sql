{#
    What SQL names and depends on, found in compiled text by pattern: a false match only repeats work.
    tests/end_to_end/test_node_states.py compares the relations with those that a parser finds, for every node.
#}


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
