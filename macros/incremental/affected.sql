{#
    incremental_strategy='affected_keys': models whose rows come from several deduplicated tables, those that config
    follows names (macros/incremental/bounds.sql).

    CTE `affected`, a block of affected_keys(), has the keys whose rows a change of one of them can have an effect on;
    in_affected() limits the other CTEs to them. The model has the rows of these keys; a row of another key is not
    written. One MERGE deletes all stored rows of the keys and inserts those: to compare them, it would have to read
    every column of the table instead of the key. It does not look at unique_key, which the model has to keep by itself.

    Config affected_key names the column of CTE `affected` and of the table, where that is not unique_key: a record has
    several lines.

    If a table has to be read from its beginning, or a seed has changed, the model is rebuilt: `affected` does not have
    the keys that are gone.
#}
{% macro merge_affected(target, sql) %}
    {% set key = affected_key() %}
    {% set recomputed = make_temp_relation(target, '__recomputed') %}
    {% call statement('recomputed') %}
        {{ create_table_as(true, recomputed, sql) }}
    {% endcall %}
    {% call statement('main') %}
        {# Spark infers the predicate of the keys for the stored rows, too, and so sorts no others if the keys are few.
           It could not if it pushed the predicate into the branches of a union: `stack` is in the way. #}
        merge into {{ target }} as stored
        using (
            with affected as (
                {{ affected_query() }}
            )

            select
                recomputed.*,
                keys.affected_key,
                keys.is_insert
            from (
                select distinct stack(2, {{ key }}, false, {{ key }}, true) as (affected_key, is_insert)
                from affected
            ) as keys
            left join {{ recomputed }} as recomputed
                on keys.is_insert and keys.affected_key = recomputed.{{ key }}
            where {{ in_affected('keys.affected_key', key) }}
        ) as changes
        on stored.{{ key }} = changes.affected_key and not changes.is_insert
        when matched then delete
        when not matched and changes.{{ key }} is not null then insert *
    {% endcall %}
{% endmacro %}


{# The block as it is. It is kept for the MERGE, which runs in the same command as the compilation. #}
{% macro affected_keys() %}
    {% set query = caller() %}
    {% if execute %}{% do node_states().affected.update({model.unique_id: query}) %}{% endif %}
    {{ query }}
{% endmacro %}


{# The query of the model's block; none without one. #}
{% macro affected_query() %}
    {% do return(node_states().affected.get(model.unique_id)) %}
{% endmacro %}


{# Whether the keys that this run recomputes are so few that Spark should broadcast them. #}
{% macro are_few() %}
    {% do return(run_query('select count(*) from (' ~ affected_query() ~ ')').rows[0][0] <= 100000) %}
{% endmacro %}


{# The column by which rows are replaced. #}
{% macro affected_key() %}
    {% do return(config.get('affected_key') or config.require('unique_key')) %}
{% endmacro %}


{# Refuse a model that cannot be merged. #}
{% macro require_affected() %}
    {% if not affected_query() or affected_key() not in pairs_of('describe query ' ~ affected_query()) %}
        {% do exceptions.raise_compiler_error(
            model.name ~ ' recomputes affected keys: select ' ~ affected_key() ~ ' in its CTE `affected`, in a block'
            ~ ' `{% raw %}{% call affected_keys() %}{% endraw %}`.'
        ) %}
    {% endif %}
{% endmacro %}
