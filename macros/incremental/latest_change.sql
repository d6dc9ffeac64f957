{#
    incremental_strategy='latest_change': the model reads new changes of one source and keeps, per unique_key, the
    latest in Kafka's order.

    Within a partition the offset decides, whatever the clocks are. A recreated topic has a new generation, which is
    after all before it. Partitions of one generation (a topic got more of them, and its keys moved) are compared by
    monotone_timestamp, the greatest timestamp of the key's records in the partition, then by their number. So a clock
    that is set back undoes no change, and a timestamp far in the future affects the keys that have it and no other.

    The table has the latest change of each key, and in other_partitions the last changes of its other partitions: a
    record that a backfill or a replay adds there later can make one of them the latest. ingest_batch is the newest one
    with a record of the key, because any of them can change the row; first_seen_at is the least timestamp of its
    records.

    Config change_columns: the columns of the record that the row is made of, the offset first. The MERGE is
    storage-partitioned as that of macros/incremental/by_order.sql: such a model must not join.
#}
{% macro merge_latest_change(target, sql) %}
    {% set change = config.require('change_columns') %}
    {% set partition_of_change = 'struct(change.kafka_generation, change.kafka_partition)' %}
    {% set known %}
        concat(
            {% for side in ('stored.', 'slice.') %}
            array(struct({{ side }}kafka_generation, {{ side }}monotone_timestamp, {{ side }}kafka_partition, {{ struct_of(change, side) }} as last_change)),
            {{ side }}other_partitions {{ ',' if not loop.last }}
            {% endfor %}
        )
    {% endset %}
    {# One element per generation and partition: its last change, at the greatest time of both sides. #}
    {% set changes %}
        transform(
            array_distinct(transform({{ known }}, change -> {{ partition_of_change }})),
            log_partition -> struct(
                log_partition.kafka_generation,
                array_max(filter({{ known }}, change -> {{ partition_of_change }} = log_partition).monotone_timestamp) as monotone_timestamp,
                log_partition.kafka_partition,
                array_max(filter({{ known }}, change -> {{ partition_of_change }} = log_partition).last_change) as last_change
            )
        )
    {% endset %}
    {% set actions %}
        when matched then update set
            kafka_generation = array_max({{ changes }}).kafka_generation,
            monotone_timestamp = array_max({{ changes }}).monotone_timestamp,
            kafka_partition = array_max({{ changes }}).kafka_partition,
            {% for column in change %}
            {{ column }} = array_max({{ changes }}).last_change.{{ column }},
            {% endfor %}
            other_partitions = array_sort(array_except({{ changes }}, array(array_max({{ changes }})))),
            first_seen_at = least(stored.first_seen_at, slice.first_seen_at),
            ingest_batch = greatest(stored.ingest_batch, slice.ingest_batch)
        when not matched then insert *
    {% endset %}
    {{ merge_slice(target, sql, actions) }}
{% endmacro %}


{# The greatest Kafka timestamp of a key's records in a partition up to this one. #}
{% macro monotone_timestamp(key) -%}
    max(kafka_timestamp) over (partition by {{ key }}, kafka_generation, kafka_partition order by kafka_offset)
{%- endmacro %}


{# The name of a record of a topic. It leaves generation 0 out, as the keys of former releases do. #}
{% macro position_key() -%}
    concat(if(kafka_generation > 0, concat(kafka_generation, '-'), ''), kafka_partition, '-', kafka_offset)
{%- endmacro %}


{% macro struct_of(columns, prefix='') -%}
    struct({{ prefix }}{{ columns | join(', ' ~ prefix) }})
{%- endmacro %}
