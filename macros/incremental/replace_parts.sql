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
{% macro stored_parts() %}
    {% set table = load_relation(this) %}
    {% if not table_properties(table).get('lakehouse.table-id') %}{% do return([]) %}{% endif %}
    {% do return(run_query(
        'select distinct cast(partition.' ~ config.require('partition_by') ~ ' as string) from ' ~ table ~ '.partitions'
    ).columns[0].values() | list) %}
{% endmacro %}
