{#
    Runs before every command that writes. It makes the masking key readable for macros/pii/pseudonym.sql, and stops
    unless the file holds one key, the one that this warehouse and its incremental tables are masked with, by the masks
    of today.

    Spark reads the key file's copy <file>.<version>, which never changes: a rotation takes effect at the next command,
    not in the middle of one. The pseudonym of a fixed word is pinned per key version in ops.pii_key_versions when the
    version is first used.
#}
{% macro check_pii_key() %}
    {% if not execute %}{% do return('') %}{% endif %}
    {% set key_file = env_var('LAKEHOUSE_PII_KEY_FILE', '') %}
    {% set remedy = 'Name the key file in LAKEHOUSE_PII_KEY_FILE; `source .lakehouse/env` does so for a local stack.' %}
    {% if not key_file %}
        {% do exceptions.raise_compiler_error(
            'The masking key is missing: LAKEHOUSE_PII_KEY_FILE is not set. ' ~ remedy
        ) %}
    {% endif %}

    {% do run_query('create schema if not exists spark_catalog.default') %}
    {% do read_file_as_table('spark_catalog.default.pii_key', key_file) %}
    {% set lines, keys, version, has_sources = run_query(
        "select count(*), count_if(value rlike '^v[0-9]+:[0-9a-f]{256}(:source)?$'),"
        ~ " max(split_part(value, ':', 1)), max(split_part(value, ':', 3))"
        ~ ' from spark_catalog.default.pii_key'
    ).rows[0].values() %}
    {% if (lines, keys) != (1, 1) %}
        {% do exceptions.raise_compiler_error(
            'The masking key file ' ~ key_file ~ ' is missing or does not hold exactly one key. ' ~ remedy
        ) %}
    {% elif not has_sources %}
        {% do exceptions.raise_compiler_error(
            'The masking key file ' ~ key_file ~ ' is of a release that gave equal numbers of two systems one'
            ~ ' pseudonym. Upgrade the lake: `lakehouse pii rotate && lakehouse weekly --full-refresh`'
            ~ ' (docs/upgrading.md).'
        ) %}
    {% endif %}
    {% if not adapter.get_relation(none, 'ops', 'pii_key_versions') %}
        {% do run_query('create schema if not exists ops') %}
        {% do run_query(
            'create table if not exists ops.pii_key_versions (key_version string, known_answer string) using iceberg'
        ) %}
    {% endif %}
    {% do require_masked_with(version) %}
    {% set copy = key_file ~ '.' ~ version %}
    {% do read_file_as_table('spark_catalog.default.pii_copy', copy) %}
    {% if run_query(
        'select count(*) from spark_catalog.default.pii_copy'
        ~ ' where value = (select max(value) from spark_catalog.default.pii_key)'
    ).rows[0][0] != 1 %}
        {% do exceptions.raise_compiler_error(
            'The masking key file ' ~ key_file ~ ' has no copy ' ~ copy ~ ', or another key in it.'
            ~ ' Run `cp -p ' ~ key_file ~ ' ' ~ copy ~ '` if that key is the right one.'
        ) %}
    {% endif %}

    {% do pin_known_answer(key_file) %}
    {% do require_same_masks() %}
    {# last: views, and builds that still run, read the pads, and must not see a key that is refused #}
    {% do read_file_as_table('spark_catalog.default.pii_pads', copy) %}
    {% do node_states().update({'key_version': version}) %}
{% endmacro %}


{# Create a text table over one file, which may have changed since another session read it. #}
{% macro read_file_as_table(table, path) %}
    {% set create = 'create table if not exists ' ~ table ~ " (value string) using text location 'file:" ~ path ~ "'" %}
    {% do run_query(create) %}
    {% if 'file:' ~ path not in run_query('describe table extended ' ~ table).columns[1].values() %}
        {% do run_query('drop table ' ~ table) %}
        {% do run_query(create) %}
    {% endif %}
    {% do run_query('refresh table ' ~ table) %}
{% endmacro %}


{# Store what the key makes of a known word, and raise if another key of this version was used before. #}
{% macro pin_known_answer(key_file) %}
    {% set known_answer = pseudonym("'known word'", 'check', 'known', pads='spark_catalog.default.pii_key') %}
    {% set version = pii_key_version(pads='spark_catalog.default.pii_key') %}
    {% set pinned = 'select count(*), count_if(known_answer = ' ~ known_answer ~ ') from ops.pii_key_versions'
        ~ ' where key_version = ' ~ version %}
    {% set rows, equal = run_query(pinned).rows[0].values() %}
    {% if rows == 0 %}
        {% do run_query('insert into ops.pii_key_versions select ' ~ version ~ ', ' ~ known_answer) %}
        {% set rows, equal = run_query(pinned).rows[0].values() %}
    {% endif %}
    {% if equal != 1 %}
        {% do exceptions.raise_compiler_error(
            'The masking key file ' ~ key_file ~ ' holds another key than the one this warehouse is masked with.'
            ~ ' Restore that key, or give the new key another version.'
        ) %}
    {% endif %}
{% endmacro %}


{# Raise if an incremental table holds pseudonyms of another version: a MERGE would mix the two. Other tables are
   written in one commit. The bounds of key_version in the files show it; with one version there is nothing to ask. #}
{% macro require_masked_with(version) %}
    {% set others = "select count(*) from ops.pii_key_versions where key_version <> '" ~ version ~ "'" %}
    {% if flags.FULL_REFRESH or run_query(others).rows[0][0] == 0 %}{% do return('') %}{% endif %}
    {% set stale = [] %}
    {% for node in graph.nodes.values()
        if node.config.materialized == 'incremental' and 'key_version' in node.columns %}
        {% set table = adapter.get_relation(node.database, node.schema, node.alias) %}
        {% if table and run_query(
            'select count(*) from ' ~ table ~ '.files where content = 0'
            ~ " and (readable_metrics.key_version.lower_bound <> '" ~ version ~ "'"
            ~ " or readable_metrics.key_version.upper_bound <> '" ~ version ~ "')"
        ).rows[0][0] > 0 %}
            {% do stale.append(table | string) %}
        {% endif %}
    {% endfor %}
    {% if stale %}
        {% do exceptions.raise_compiler_error(
            'The masking key is ' ~ version ~ ', but ' ~ stale | sort | join(', ') ~ ' was masked with another version.'
            ~ ' Mask all again: `lakehouse weekly --full-refresh`.'
        ) %}
    {% endif %}
{% endmacro %}
