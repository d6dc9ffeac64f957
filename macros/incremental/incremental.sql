{#
    The incremental materialization of this project's models; models of packages keep dbt-spark's. It differs from that
    of dbt-spark 1.11:
    - a full refresh creates or replaces the table. dbt-spark drops it first: readers fail meanwhile, and the table's
      history is gone;
    - the batches that a run reads are decided when it runs, by the properties of its table
      (macros/incremental/watermark.sql), and set in its session;
    - each run that writes compares its columns with the yml and the table (macros/incremental/columns.sql);
    - a model that is as its last run left it, with the same inputs, is skipped (macros/state/node_states.sql).

    Config incremental_strategy decides what a run does with the rows that it computes:
    earliest: of each unique_key the row that is first by order_by stays (macros/incremental/by_order.sql).
    latest_change: of each unique_key the latest change in Kafka's order stays (macros/incremental/latest_change.sql).
    affected_keys: the rows of keys that a change can have an effect on are replaced (macros/incremental/affected.sql).
    replace_partitions: the partitions that the run names are replaced (macros/incremental/partitions.sql).
    rebuild_if_changed: the table is rebuilt if there are new batches, else left as it is.
#}
{% materialization incremental, adapter='spark' %}
    {% if model.package_name != project_name %}
        {{ return(dbt.materialization_incremental_spark()) }}
    {% endif %}
    {% set strategy = config.get('incremental_strategy') %}
    {% set strategies = ['earliest', 'latest_change', 'affected_keys', 'replace_partitions', 'rebuild_if_changed'] %}
    {% if strategy not in strategies %}
        {% do exceptions.raise_compiler_error(
            model.name ~ ': incremental_strategy is ' ~ strategy ~ '. Set one of ' ~ strategies | join(', ') ~ '.'
        ) %}
    {% endif %}
    {% if is_unchanged(sql) %}{{ return(unchanged()) }}{% endif %}
    {% set existing = load_relation(this) %}
    {% set unread = unread_batches(existing) %}
    {% set is_new = existing is none or existing.is_view or should_full_refresh() %}
    {% set rebuilds = (
        is_new
        or strategy == 'rebuild_if_changed'
        or (strategy == 'affected_keys' and (not unread.is_continued or is_small(existing)))
        or (strategy == 'replace_partitions' and not unread.table_id)
    ) %}

    {{ run_hooks(pre_hooks) }}

    {% if not is_new and unread.is_continued and unread.upstreams and not unread.exist %}
        {% call noop_statement('main', 'no new batches') %}{% endcall %}
    {% else %}
        {% do set_bounds(unread, rebuilds) %}
        {% if strategy == 'affected_keys' %}
            {# at its first run, and not when its table has grown #}
            {% do require_affected() %}
            {% if not rebuilds %}{% do set_bounds(unread, rebuilds, are_few()) %}{% endif %}
        {% endif %}
        {% set sql = require_columns(sql, none if rebuilds else this) %}
        {% if model.config.meta.export %}{% do record_provenance() %}{% endif %}
        {% if rebuilds %}
            {% if existing is not none and existing.is_view %}{% do adapter.drop_relation(existing) %}{% endif %}
            {% call statement('main') %}
                {{ create_table_as(false, this, sql) }}
            {% endcall %}
        {% elif strategy == 'affected_keys' %}
            {{ merge_affected(this, sql) }}
        {% elif strategy == 'replace_partitions' %}
            {{ replace_partitions(this, sql) }}
        {% elif strategy == 'latest_change' %}
            {{ merge_latest_change(this, sql) }}
        {% else %}
            {{ merge_by_order(this, sql) }}
        {% endif %}
        {# Batches of another bronze table, or of one that was rolled back, have numbers that readers have passed. #}
        {% do record_read(this, unread, is_renewed=is_new or not unread.is_continued) %}
        {% do node_states().written.append(this.schema ~ '.' ~ this.identifier) %}
    {% endif %}

    {% do persist_docs(this, model) %}
    {% do after_run() %}
    {{ run_hooks(post_hooks) }}
    {{ return({'relations': [this]}) }}
{% endmaterialization %}


{# Whether a table has so few rows that a rebuild takes less time than a MERGE. #}
{% macro is_small(table) %}
    {% set rows = described(table.schema ~ '.' ~ table.identifier).rows %}
    {% do return(rows is not none and rows | int < var('rebuild_below_rows')) %}
{% endmacro %}
