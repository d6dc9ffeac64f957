{#
    The incremental materialization of this project's models; those of packages
    keep dbt-spark's. What dbt-spark 1.11 does otherwise:
    - a full refresh creates or replaces the table. dbt-spark drops it first:
      readers fail meanwhile and the table's history is gone;
    - what a run reads is decided here, when it runs, from what the table's
      properties say it has read (macros/incremental/watermark.sql), and filled
      into the compiled SQL;
    - its columns are compared with the yml and with the table, in each run
      (macros/incremental/columns.sql).

    Config incremental_strategy says what a run does with the rows it computes:
    earliest: of each unique_key the row stays that is first by order_by
        (macros/incremental/by_order.sql).
    latest_change: of each unique_key the latest change in Kafka's order stays
        (macros/incremental/latest_change.sql).
    affected_keys: the rows of keys that a change can have an effect on are put
        in the place of the old ones (macros/incremental/affected.sql).
    named_parts: the parts that the run names are put in the place of the old
        ones (macros/incremental/parts.sql).
    whole: the table is built anew if there is news, else left as it is.
#}
{% materialization incremental, adapter='spark' %}
    {% if model.package_name != project_name %}
        {{ return(dbt.materialization_incremental_spark()) }}
    {% endif %}
    {% set strategy = config.require('incremental_strategy') %}
    {% if strategy not in ('earliest', 'latest_change', 'affected_keys', 'named_parts', 'whole') %}
        {% do exceptions.raise_compiler_error(model.name ~ ': there is no incremental_strategy ' ~ strategy) %}
    {% endif %}
    {% set existing = load_relation(this) %}
    {% set news = news_of(existing) %}
    {% set is_new = existing is none or existing.is_view or should_full_refresh() %}
    {% set rebuilds = (
        is_new
        or strategy == 'whole'
        or (strategy == 'affected_keys' and not news.is_continued)
        or (strategy == 'named_parts' and not news.table_id)
    ) %}

    {{ run_hooks(pre_hooks) }}

    {% if not is_new and news.is_continued and news.upstreams and not news.has_news %}
        {% call noop_statement('main', 'no news') %}{% endcall %}
    {% else %}
        {% if news.upstreams %}{% do require_current(model.unique_id) %}{% endif %}
        {% set sql = with_bounds(compiled_code, news, rebuilds) %}
        {% set rows = without_gone(sql) if strategy == 'affected_keys' else sql %}
        {% do require_columns(rows, none if rebuilds else this) %}
        {% if model.config.meta.export %}
            {% do record_provenance() %}
        {% endif %}
        {% if rebuilds %}
            {% if existing is not none and existing.is_view %}
                {% do adapter.drop_relation(existing) %}
            {% endif %}
            {% call statement('main') %}
                {{ create_table_as(false, this, rows) }}
            {% endcall %}
        {% elif strategy == 'affected_keys' %}
            {{ merge_affected(this, sql) }}
        {% elif strategy == 'named_parts' %}
            {{ replace_parts(this, sql) }}
        {% elif strategy == 'latest_change' %}
            {{ merge_latest_change(this, sql) }}
        {% else %}
            {{ merge_by_order(this, sql) }}
        {% endif %}
        {# Rows of another bronze table, or of a table that was put back, have numbers that readers have passed. #}
        {% do record_read(this, news, is_renewed=is_new or not news.is_continued) %}
    {% endif %}

    {% do persist_docs(this, model) %}
    {{ run_hooks(post_hooks) }}
    {{ return({'relations': [this]}) }}
{% endmaterialization %}
