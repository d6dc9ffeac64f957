{# A row of ops_reconciliation: the rows on both sides of a check, those on the right as a list that adds up. The
   subject is the model or topic whose rows are missing if they differ. #}
{% macro row_count_check(check_name, subject, left_rows, right_rows) %}
    select
        '{{ check_name }}' as check_name,
        '{{ subject.identifier }}' as subject,
        {{ left_rows }} as left_rows,
        {{ right_rows | join(' + ') }} as right_rows
{% endmacro %}


{# A figure of a relation's rows as one number, their count if it names no other. #}
{% macro count_rows(relation, where='true', figure='count(*)') -%}
    (select {{ figure }} from {{ relation }} where {{ where }})
{%- endmacro %}


{# The rows of ops_reconciliation of each topic. Topics land while dbt runs: both sides of a check stop at the batch
   that was read last. #}
{% macro row_counts_of_topics() %}
    {% set dead = 'count(decode_error)' %}
    {% set dead_or_tombstone =
        'count(*) - count(kafka_raw_value) filter (where decode_error is null)' %}
    {% call(topic) every_topic() %}
        {% set bronze, staged = source(topic.source, topic.table), ref(topic.staged) %}
        {% set deduplicated = ref(topic.deduplicated) %}
        {% set read = 'ingest_batch <= ' ~ read_until(table_properties(deduplicated)) %}
        {{ row_count_check(
            'landed = staged + dead letters + erased + dropped tombstones', bronze,
            count_rows(bronze, read),
            [
                count_rows(staged, read),
                count_rows(bronze, read, dead if topic.keeps_tombstones else dead_or_tombstone),
            ]
        ) }}
        union all
        {{ row_count_check(
            'staged = deduplicated + removed', deduplicated,
            count_rows(staged, read),
            [
                count_rows(deduplicated, topic.where or 'true'),
                count_rows(staged, read, 'count(*) - count(distinct ' ~ topic.key ~ ')'),
            ]
        ) }}
    {% endcall %}
{% endmacro %}


{# The rows of ops_reconciliation of each weekly file. #}
{% macro row_counts_of_datasets() %}
    {% call(dataset) every_dataset() %}
        {% set mart, export = ref(dataset.mart), ref('exp_weekly__' ~ dataset.name) %}
        {{ row_count_check(
            'mart rows of the weeks = export', export,
            count_rows(mart, in_exported_weeks(dataset.week)),
            [count_rows(export, in_exported_weeks(dataset.week))]
        ) }}
    {% endcall %}
{% endmacro %}
