{#
    incremental_strategy='earliest': the model reads new rows of one source, reduced to one row per unique_key by
    earliest_of. One atomic MERGE inserts a new key, and replaces the row of a known key only by a row before it in
    order_by. So reading a batch again changes nothing.

    Of a table in buckets of its key (partition_by) no row is shuffled: each bucket is joined with its new rows, a
    storage-partitioned join. Spark may do that here alone, because nothing is joined below the MERGE
    (conf/spark-defaults.conf has the reason): such a model must not join.
#}
{% macro merge_by_order(target, sql) %}
    {% set order_by = config.require('order_by') %}
    {% set actions %}
        when matched
            and struct({{ terms_of('slice', order_by) }}) < struct({{ terms_of('stored', order_by) }})
            then update set *
        when not matched then insert *
    {% endset %}
    {{ merge_slice(target, sql, actions) }}
{% endmacro %}


{# MERGE the rows of a query, `slice`, by unique_key into a table, `stored`; storage-partitioned if it has buckets. #}
{% macro merge_slice(target, sql, actions) %}
    {% set key, is_bucketed = config.require('unique_key'), config.get('partition_by') is not none %}
    {% set slice = make_temp_relation(target, '__slice') %}
    {% call statement('slice') %}
        {{ create_table_as(true, slice, sql) }}
    {% endcall %}
    {% if is_bucketed %}{% do run_query('set spark.sql.sources.v2.bucketing.enabled = true') %}{% endif %}
    {% call statement('main') %}
        merge into {{ target }} as stored
        using {{ slice }} as slice
        on stored.{{ key }} = slice.{{ key }}
        {{ actions }}
    {% endcall %}
    {% if is_bucketed %}{% do run_query('reset spark.sql.sources.v2.bucketing.enabled') %}{% endif %}
{% endmacro %}


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
