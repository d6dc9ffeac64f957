{#
    incremental_strategy='replace_partitions': the table is partitioned by one column, and one statement replaces the
    partitions that a run names. The others stay as they are: to build an old one again takes nothing from readers.

    Config: partition_by, the column, and partitions, the macro that lists the partitions of a run as texts, such as
    exported_weeks.
#}
{% macro replace_partitions(target, sql) %}
    {% set columns = adapter.get_columns_in_relation(target) | map(attribute='name') | join('`, `') %}
    {% call statement('main') %}
        insert into {{ target }}
        replace where {{ written_by_run(model) }}
        select `{{ columns }}` from (
            {{ sql }}
        )
        where {{ written_by_run(model) }}
    {% endcall %}
{% endmacro %}


{# The predicate that a run of a model writes a row, and its tests read it: of the partitions that it names, or of none.
   A NULL that a join makes in the partition column must not hide its row from the tests, or outlast the correction. #}
{% macro written_by_run(node) -%}
    ({{ in_partitions(node.config.partition_by, partitions_of_run(node)) }} or {{ node.config.partition_by }} is null)
{%- endmacro %}


{# The predicate that a row belongs to one of some partitions. #}
{% macro in_partitions(column, partitions) -%}
    {{ column }} in ('{{ partitions | join("', '") }}')
{%- endmacro %}


{# The partitions that a run of a model names. #}
{% macro partitions_of_run(node) %}
    {% do return(context[node.config.partitions]()) %}
{% endmacro %}


{# The partitions that a run builds: on a full refresh also those that the table has, so that readers lose none. #}
{% macro with_stored_partitions(partitions) %}
    {% set is_refresh = config.get('incremental_strategy') == 'replace_partitions' and should_full_refresh() %}
    {% set table = load_relation(this) if execute and is_refresh %}
    {% if table_properties(table).get('lakehouse.table-id') %}
        {% set stored = run_query(
            'select distinct cast(partition.' ~ config.require('partition_by') ~ ' as string)'
            ~ ' from ' ~ table ~ '.partitions'
        ).columns[0].values() %}
        {% do return((partitions + stored | list) | unique | sort) %}
    {% endif %}
    {% do return(partitions) %}
{% endmacro %}
