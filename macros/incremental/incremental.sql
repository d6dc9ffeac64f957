{#
    The incremental materialization, in the place of dbt-spark 1.11's own:
    - a full refresh creates or replaces the table. dbt-spark drops it first:
      readers fail meanwhile and the table's history is gone;
    - one MERGE, by config `keep`. dbt-spark's updates without a condition, so
      the last batch would always win over the earliest event.

    keep='first' or 'last': the model reads new rows of one source; of each
        unique_key the row stays that is first or last by order_by. What a run
        reads: macros/incremental/new_batches.sql.
    keep='recomputed': the model reads several deduplicated tables; every row
        of an affected key is computed anew. See macros/incremental/affected.sql.
#}
{% materialization incremental, adapter='spark' %}
    {% set existing = load_relation(this) %}
    {% set recomputes = config.require('keep') == 'recomputed' %}
    {% set newest = news(compiled_code) %}

    {% set rebuilds = existing is none or existing.is_view or should_full_refresh() %}
    {% if recomputes and not rebuilds %}{% do require_same_shape(this) %}{% endif %}

    {{ run_hooks(pre_hooks) }}

    {% if rebuilds %}
        {% if existing is not none and existing.is_view %}
            {% do adapter.drop_relation(existing) %}
        {% endif %}
        {% call statement('main') %}
            {{ create_table_as(false, this, compiled_code) }}
        {% endcall %}
    {% elif newest == {} %}
        {% call noop_statement('main', 'no news') %}{% endcall %}
    {% elif recomputes %}
        {{ merge_recomputed(this, compiled_code) }}
    {% else %}
        {% set slice = make_temp_relation(this, '__slice') %}
        {% call statement('slice') %}
            {{ create_table_as(true, slice, compiled_code) }}
        {% endcall %}
        {% call statement('main') %}
            {{ merge_if_better(
                this,
                slice,
                config.require('unique_key'),
                config.require('order_by'),
                config.require('keep')
            ) }}
        {% endcall %}
    {% endif %}

    {% if newest %}{% do record_read_until(this, newest) %}{% endif %}
    {% do persist_docs(this, model) %}
    {{ run_hooks(post_hooks) }}
    {{ return({'relations': [this]}) }}
{% endmaterialization %}


{# One statement, atomic: a new key is inserted, a known key is replaced only
   by a row that stands before (keep = 'first') or after ('last') its own. #}
{% macro merge_if_better(target, slice, unique_key, order_by, keep) %}
    {% set comparison = {'first': '<', 'last': '>'}[keep] %}
    merge into {{ target }} as kept
    using {{ slice }} as slice
    on kept.{{ unique_key }} = slice.{{ unique_key }}
    when matched
        and struct({% for column in order_by %}slice.{{ column }}{{ ', ' if not loop.last }}{% endfor %})
        {{ comparison }} struct({% for column in order_by %}kept.{{ column }}{{ ', ' if not loop.last }}{% endfor %})
        then update set *
    when not matched then insert *
{% endmacro %}
