{#
    incremental_strategy='affected_keys': models whose rows come from several deduplicated tables, those that config
    follows names (macros/incremental/bounds.sql).

    CTE `affected` has the keys whose rows a change of one of them can have an effect on; in_affected() limits the other
    CTEs to them. The last CTE has the rows of these keys; a row of another key is not written. One MERGE deletes all
    stored rows of the keys and inserts those: to compare them, it would have to read every column of the table instead
    of the key. It does not look at unique_key, which the model has to keep by itself.

    Config affected_key names the column of CTE `affected` and of the table, where that is not unique_key: a record has
    several lines.

    If a table has to be read from its beginning, or a seed has changed, the model is rebuilt: `affected` does not have
    the keys that are gone.
#}
{% macro merge_affected(target, sql) %}
    {% set key = affected_key() %}
    {# Spark expects as many affected keys as the tables have rows that they come from, and would sort each table. #}
    {% set are_few = run_query(query_of(sql, 'select count(*) from affected')).rows[0][0] <= 100000 %}
    {% set hint = '/*+ broadcast(affected) */' if are_few %}
    {% set sql = sql | replace('(select affected.', '(select ' ~ hint ~ ' affected.') %}
    {% set recomputed = make_temp_relation(target, '__recomputed') %}
    {% call statement('recomputed') %}
        {{ create_table_as(true, recomputed, sql) }}
    {% endcall %}
    {% call statement('main') %}
        {# Spark infers the predicate of the keys for the stored rows, too, and so sorts no others if the keys are few.
           It could not if it pushed the predicate into the branches of a union: `stack` is in the way. #}
        merge into {{ target }} as stored
        using (
            select
                recomputed.*,
                affected.affected_key,
                affected.is_insert
            from (
                {{ query_of(sql, 'select distinct stack(2, ' ~ key ~ ', false, ' ~ key ~ ', true)'
                    ~ ' as (affected_key, is_insert) from affected') }}
            ) as affected
            left join {{ recomputed }} as recomputed
                on affected.is_insert and affected.affected_key = recomputed.{{ key }}
            where affected.affected_key in (
                {# Spark loses the hint of a subquery that starts with its CTEs. #}
                select {{ hint }} affected.{{ key }} from ({{ query_of(sql, 'select * from affected') }}) as affected
            )
        ) as changes
        on stored.{{ key }} = changes.affected_key and not changes.is_insert
        when matched then delete
        when not matched and changes.{{ key }} is not null then insert *
    {% endcall %}
{% endmacro %}


{# The column by which rows are replaced. #}
{% macro affected_key() %}
    {% do return(config.get('affected_key') or config.require('unique_key')) %}
{% endmacro %}


{# Refuse a model that cannot be merged. #}
{% macro require_affected(sql) %}
    {% if affected_key() not in pairs_of('describe query ' ~ query_of(sql, 'select * from affected')) %}
        {% do exceptions.raise_compiler_error(
            model.name ~ ' recomputes affected keys: select ' ~ affected_key() ~ ' in its CTE `affected`.'
        ) %}
    {% endif %}
{% endmacro %}


{# Another query of a model's CTEs. #}
{% macro query_of(sql, query) %}
    {% set last = 'select * from final' %}
    {% if sql.count(last) != 1 %}
        {% do exceptions.raise_compiler_error(model.name ~ ' recomputes affected keys: end it with `' ~ last ~ '`.') %}
    {% endif %}
    {% do return(sql | replace(last, query)) %}
{% endmacro %}
