{#
    Runs before every command that writes: makes the key file readable for
    macros/pii/pseudonym.sql and stops unless it holds the one key this
    warehouse is masked with. The pseudonym of a fixed word is pinned per key
    version in ops.pii_key_versions when the version is first used.
#}
{% macro check_pii_key() %}
    {% if not execute %}{% do return('') %}{% endif %}
    {% set key_file = env_var('LAKEHOUSE_PII_KEY_FILE', '') %}
    {% set remedy = 'Name the key file in LAKEHOUSE_PII_KEY_FILE; `source .lakehouse/env` does so for a local stack.' %}
    {% if not key_file %}
        {% do exceptions.raise_compiler_error('The masking key is missing: LAKEHOUSE_PII_KEY_FILE is not set. ' ~ remedy) %}
    {% endif %}

    {% do run_query('create schema if not exists spark_catalog.default') %}
    {% set pads = 'spark_catalog.default.pii_pads' %}
    {% set location = 'file:' ~ key_file %}
    {% set create_pads %}
        create table if not exists {{ pads }} (value string) using text location '{{ location }}'
    {% endset %}
    {% do run_query(create_pads) %}
    {% set described = run_query('describe table extended ' ~ pads) %}
    {% if location not in described.columns[1].values() %}
        {% do run_query('drop table ' ~ pads) %}
        {% do run_query(create_pads) %}
    {% endif %}
    {% do run_query('refresh table ' ~ pads) %}
    {% set found = run_query(
        "select count(*), count_if(value rlike '^v[0-9]+:[0-9a-f]{256}$') from " ~ pads
    ).rows[0] %}
    {% if found[0] != 1 or found[1] != 1 %}
        {% do exceptions.raise_compiler_error(
            'The masking key file ' ~ key_file ~ ' is missing or does not hold exactly one key. ' ~ remedy
        ) %}
    {% endif %}

    {% do run_query('create schema if not exists ops') %}
    {% do run_query(
        'create table if not exists ops.pii_key_versions'
        ~ ' (key_version string, known_answer string) using iceberg'
    ) %}
    {% set known_answer = pseudonym("'known word'", 'check') %}
    {% set pinned %}
        select count(*), count_if(known_answer = {{ known_answer }})
        from ops.pii_key_versions
        where key_version = {{ pii_key_version() }}
    {% endset %}
    {% if run_query(pinned).rows[0][0] == 0 %}
        {% do run_query(
            'insert into ops.pii_key_versions select ' ~ pii_key_version() ~ ', ' ~ known_answer
        ) %}
    {% endif %}
    {% if run_query(pinned).rows[0][1] != 1 %}
        {% do exceptions.raise_compiler_error(
            'The masking key file ' ~ key_file ~ ' holds another key than the one this warehouse is masked with.'
            ~ ' Restore that key, or give the new key a version of its own.'
        ) %}
    {% endif %}
{% endmacro %}
