{#
    The rows of ops_reconciliation. A check has terms on both sides, and each side adds up. Terms of the same rows are
    counted by one scan: a relation often has a part in several checks.
#}


{# A row per term, of one scan of each relation. #}
{% macro row_counts(checks) -%}
    {%- set terms = {} -%}
    {%- for check in checks -%}
        {%- for term in check.left -%}
            {%- do terms.setdefault(term.rows, []).append([check, term.figure, 'cast(0 as bigint)']) -%}
        {%- endfor -%}
        {%- for term in check.right -%}
            {%- do terms.setdefault(term.rows, []).append([check, 'cast(0 as bigint)', term.figure]) -%}
        {%- endfor -%}
    {%- endfor -%}
    {%- for rows, figures in terms.items() -%}
    select explode(array(
        {%- for check, left_rows, right_rows in figures %}
        struct(
            '{{ check.name }}' as check_name, '{{ check.subject.identifier }}' as subject,
            {{ left_rows }} as left_rows, {{ right_rows }} as right_rows
        ){{ ',' if not loop.last }}
        {%- endfor %}
    )) as term
    from {{ rows }}
    {{ 'union all' if not loop.last }}
    {% endfor -%}
{% endmacro %}


{# A check. The subject is the model or topic whose rows are missing if its sides differ. #}
{% macro row_count_check(name, subject, left, right) %}
    {% do return({'name': name, 'subject': subject, 'left': left, 'right': right}) %}
{% endmacro %}


{# A term of a check: a figure of rows, which are a relation or its rows `where` something. #}
{% macro counted(rows, figure='count(*)') %}
    {% do return({'rows': rows | string, 'figure': figure}) %}
{% endmacro %}


{# The checks of each topic. Topics land while dbt runs: both sides of a check stop at the batch that was read last. #}
{% macro row_counts_of_topics() %}
    {% set checks = [] %}
    {% set dead = 'count(decode_error)' %}
    {% set dead_or_tombstone =
        'count(*) - count(kafka_raw_value) filter (where decode_error is null)' %}
    {% call(topic) every_topic() %}
        {% set bronze, deduplicated = source(topic.source, topic.table), ref(topic.deduplicated) %}
        {% set read = ' where ingest_batch <= ' ~ read_until(table_properties(deduplicated)) %}
        {% set landed, staged = bronze ~ read, ref(topic.staged) ~ read %}
        {% set kept = deduplicated ~ ' where ' ~ topic.where if topic.where else deduplicated %}
        {% do checks.append(row_count_check(
            'landed = staged + dead letters + erased + dropped tombstones', bronze,
            [counted(landed)],
            [counted(staged), counted(landed, dead if topic.keeps_tombstones else dead_or_tombstone)]
        )) %}
        {% do checks.append(row_count_check(
            'staged = deduplicated + removed', deduplicated,
            [counted(staged)],
            [counted(kept), counted(staged, 'count(*) - count(distinct ' ~ topic.key ~ ')')]
        )) %}
    {% endcall %}
    {% do return(checks) %}
{% endmacro %}


{# The check of each weekly file. #}
{% macro row_counts_of_datasets() %}
    {% set checks = [] %}
    {% call(dataset) every_dataset(separator='') %}
        {% set mart, export = ref(dataset.mart), ref('exp_weekly__' ~ dataset.name) %}
        {% set of_weeks = ' where ' ~ in_exported_weeks(dataset.week) %}
        {% do checks.append(row_count_check(
            'mart rows of the weeks = export', export, [counted(mart ~ of_weeks)], [counted(export ~ of_weeks)]
        )) %}
    {% endcall %}
    {% do return(checks) %}
{% endmacro %}
