{#
    incremental_strategy='affected_keys': models whose rows come from several deduplicated tables, those that config
    follows names (macros/incremental/bounds.sql).

    CTE `affected` has the keys whose rows a change of one of them can have an effect on; in_affected() limits the other
    CTEs to them. The last CTE has a row for each affected key, with is_gone: whether the table must not have that row.
    One MERGE inserts, updates and deletes.

    Config affected_key is for models whose CTE `affected` has other keys than unique_key, as orders have for their lines:
    an expression of columns of `stored` that equals column affected_key of that CTE, a text. The last CTE then has the
    rows of these keys, without is_gone. The MERGE deletes all stored rows of these keys and inserts those, and does not
    look at unique_key.

    If a table has to be read from its beginning, or a seed has changed, the model is rebuilt: `affected` does not have
    the keys that are gone.
#}


{# The query of a table's rows, without what is gone. #}
{% macro without_gone(sql) %}
    {# Refuses a model at its first run, and not when its table is large enough to be merged. #}
    {% do query_of(sql, '') %}
    {% if config.get('affected_key') %}{{ return(sql) }}{% endif %}
    select * except (is_gone) from (
        {{ sql }}
    )
    where not is_gone
{% endmacro %}


{# Rows of affected keys are written even if they are as before: to compare them, the MERGE would have to read every
   column of the table instead of the key. #}
{% macro merge_affected(target, sql) %}
    {% set key, affected_key = config.require('unique_key'), config.get('affected_key') %}
    {# Spark expects as many affected keys as the tables have rows that they come from, and would sort each table. #}
    {% set are_few = run_query(query_of(sql, 'select count(*) from affected')).rows[0][0] <= 100000 %}
    {% if are_few %}
        {% set sql = sql | replace('(select affected.', '(select /*+ broadcast(affected) */ affected.') %}
    {% endif %}
    {% set recomputed = make_temp_relation(target, '__recomputed') %}
    {% call statement('recomputed') %}
        {{ create_table_as(true, recomputed, sql) }}
    {% endcall %}
    {% call statement('main') %}
        merge into {{ target }} as stored
        using (
            {% if affected_key %}
            {# Inserts, whose key no stored row has: with NULL all would be in one partition. Then the affected keys, of
               which all stored rows are deleted, with NULL as the row. #}
            select
                *,
                concat('insert ', {{ key }}) as merge_key,
                false as is_gone
            from {{ recomputed }}
            union all
            select
                recomputed.*,
                affected.affected_key as merge_key,
                true as is_gone
            from ({{ query_of(sql, 'select distinct affected_key from affected') }}) as affected
            left join {{ recomputed }} as recomputed
                on false
            {% else %}
            select *, {{ key }} as merge_key from {{ recomputed }}
            {% endif %}
        ) as changes
        on {{ affected_key or 'stored.' ~ key }} = changes.merge_key
        when matched and changes.is_gone then delete
        when matched then update set *
        when not matched and not changes.is_gone then insert *
    {% endcall %}
{% endmacro %}


{# Another query of a model's CTEs. #}
{% macro query_of(sql, query) %}
    {% set last = 'select * from final' %}
    {% if sql.count(last) != 1 %}
        {% do exceptions.raise_compiler_error(model.name ~ ' recomputes affected keys: end it with `' ~ last ~ '`.') %}
    {% endif %}
    {% do return(sql | replace(last, query)) %}
{% endmacro %}
