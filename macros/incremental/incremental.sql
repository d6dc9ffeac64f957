{#
    The incremental materialization, in the place of dbt-spark 1.11's own:
    - a full refresh creates or replaces the table. dbt-spark drops it first:
      readers fail meanwhile and the table's history is gone;
    - one MERGE with a conditional update. dbt-spark's update is unconditional,
      so the last batch would always win over the earliest event.

    Config: unique_key (one column), keep ('first' or 'last') and order_by (the
    columns of the total order). See macros/incremental/new_batches.sql for
    what a run reads.
#}
{% materialization incremental, adapter='spark' %}
    {% set existing = load_relation(this) %}
    {% set slice = make_temp_relation(this, '__slice') %}

    {{ run_hooks(pre_hooks) }}

    {% if existing is none or existing.is_view or should_full_refresh() %}
        {% if existing is not none and existing.is_view %}
            {% do adapter.drop_relation(existing) %}
        {% endif %}
        {% call statement('main') %}
            {{ create_table_as(false, this, compiled_code) }}
        {% endcall %}
    {% else %}
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
