{#
    incremental_strategy='affected_keys': models whose rows come from several deduplicated tables, those that config
    follows names (macros/incremental/bounds.sql).

    CTE `affected` has the keys whose rows a change of one of them can have an effect on; in_affected() limits the other
    CTEs to them. The last CTE has a row for each affected key, with is_gone: whether the table must not have that row.
    One MERGE inserts, updates and deletes.

    Config affected_key: an expression of the table's columns, where `affected` has other keys than unique_key, as
    orders for their lines. The last CTE then has a column affected_key, too, and stored rows of an affected key that it
    does not have are deleted.

    If a table has to be read from its beginning, or a seed has changed, the model is rebuilt: `affected` does not have
    the keys that are gone.
#}


{# The query of a table's rows, without what is gone. #}
{% macro without_gone(sql) %}
    select * except (is_gone{{ ', affected_key' if config.get('affected_key') }}) from (
        {{ sql }}
    )
    where not is_gone
{% endmacro %}


{# Rows of affected keys are written even if they are as before: to compare them, the MERGE would have to read every
   column of the table instead of the key. #}
{% macro merge_affected(target, sql) %}
    {% set key, affected_key = config.require('unique_key'), config.get('affected_key') %}
    {% set recomputed = make_temp_relation(target, '__recomputed') %}
    {% call statement('recomputed') %}
        {{ create_table_as(true, recomputed, sql) }}
    {% endcall %}
    {% call statement('main') %}
        merge into {{ target }} as stored
        using (
            {% if affected_key %}
            select
                recomputed.* except (is_gone),
                coalesce(recomputed.{{ key }}, before.{{ key }}) as merge_key,
                recomputed.{{ key }} is null as is_gone
            from (select * from {{ recomputed }} where not is_gone) as recomputed
            full outer join (
                select {{ key }} from {{ target }}
                where {{ affected_key }} in (select affected_key from {{ recomputed }})
            ) as before
                on recomputed.{{ key }} = before.{{ key }}
            {% else %}
            select *, {{ key }} as merge_key from {{ recomputed }}
            {% endif %}
        ) as changes
        on stored.{{ key }} = changes.merge_key
        when matched and changes.is_gone then delete
        when matched then update set *
        when not matched and not changes.is_gone then insert *
    {% endcall %}
{% endmacro %}
