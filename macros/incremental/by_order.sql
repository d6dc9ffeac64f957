{#
    incremental_strategy='earliest': the model reads new rows of one source,
    reduced to one row per unique_key by earliest_of. A run puts them into the
    table by one MERGE, atomic: a new key is inserted, a known key replaced only
    by a row that is before its own, by order_by. So reading a batch again
    changes nothing.

    A table in buckets of its key (partition_by) is not shuffled for it: each
    bucket is joined with the new rows of its own, a storage-partitioned join.
    Spark is allowed that here alone, because nothing is joined below the MERGE
    (conf/spark-defaults.conf says why): such a model must not join.
#}


{# The rank of a row among those of its key: 1 for the one that stays. #}
{% macro earliest_of(key, order_by) -%}
    row_number() over (partition by {{ key }} order by {{ order_by | join(', ') }})
{%- endmacro %}


{# The terms of an order, columns or `not <column>`, of one side of the MERGE. #}
{% macro terms_of(side, order_by) -%}
    {% for term in order_by -%}
        {{ 'not ' if term.startswith('not ') }}{{ side }}.{{ term | replace('not ', '') }}{{ ', ' if not loop.last }}
    {%- endfor %}
{%- endmacro %}


{% macro merge_by_order(target, sql) %}
    {% set key, order_by = config.require('unique_key'), config.require('order_by') %}
    {% set slice = make_temp_relation(target, '__slice') %}
    {% call statement('slice') %}
        {{ create_table_as(true, slice, sql) }}
    {% endcall %}
    {% set is_bucketed = config.get('partition_by') is not none %}
    {% if is_bucketed %}
        {% do run_query('set spark.sql.sources.v2.bucketing.enabled = true') %}
    {% endif %}
    {% call statement('main') %}
        merge into {{ target }} as stored
        using {{ slice }} as slice
        on stored.{{ key }} = slice.{{ key }}
        when matched
            and struct({{ terms_of('slice', order_by) }}) < struct({{ terms_of('stored', order_by) }})
            then update set *
        when not matched then insert *
    {% endcall %}
    {% if is_bucketed %}
        {% do run_query('reset spark.sql.sources.v2.bucketing.enabled') %}
    {% endif %}
{% endmacro %}
