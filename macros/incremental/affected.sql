{#
    incremental_strategy='affected_keys': models whose rows come from several
    deduplicated tables.

    Such a model begins with a CTE `affected`: the keys whose rows may have
    changed, found by `where {{ changed_in(ref('int_..._deduplicated')) }}` in
    each table that it follows. Its other CTEs are limited by
    {{ in_affected('<key>') }}. A run puts the rows of the affected keys in the
    place of those the table has, by one MERGE: rows are inserted, updated, and
    deleted when there are no such rows any more.

    Config: unique_key, and affected_key if `affected` holds something else of
    the table's rows than that, for instance the order of order lines.

    How far each table was read: macros/incremental/watermark.sql. If a table
    has to be read from its beginning, or a seed has changed, the model is built
    anew as a whole: `affected` does not know the keys that are gone.
#}


{# The increment. Every model ends in `select * from final`; the same query
   that ends in `select * from affected` gives the affected keys. Rows of
   affected keys are written even if they are as before: to compare them, the
   MERGE would have to read every column of the table instead of the key. #}
{% macro merge_affected(target, sql) %}
    {% set of_rows, final, rest = sql.rpartition('select * from final') %}
    {% if not final or rest.strip() %}
        {% do exceptions.raise_compiler_error(model.name ~ ' has to end in `select * from final`') %}
    {% endif %}
    {% set recomputed = make_temp_relation(target, '__recomputed') %}
    {% set affected = make_temp_relation(target, '__affected') %}
    {% call statement('recomputed') %}
        {{ create_table_as(true, recomputed, sql) }}
    {% endcall %}
    {% call statement('affected') %}
        {{ create_table_as(true, affected, of_rows ~ 'select * from affected') }}
    {% endcall %}
    {% set key = config.require('unique_key') %}
    {% set affected_key = config.get('affected_key', key) %}
    {% call statement('main') %}
        merge into {{ target }} as stored
        using (
            select
                recomputed.*,
                coalesce(recomputed.{{ key }}, before.{{ key }}) as merge_key,
                recomputed.{{ key }} is null as is_gone
            from {{ recomputed }} as recomputed
            full outer join (
                {% if affected_key == key %}
                select * from {{ affected }}
                {% else %}
                select {{ key }} from {{ target }}
                where {{ affected_key }} in (select * from {{ affected }})
                {% endif %}
            ) as before
                on recomputed.{{ key }} = before.{{ key }}
        ) as changes
        on stored.{{ key }} = changes.merge_key
        when matched and changes.is_gone then delete
        when matched then update set *
        when not matched and not changes.is_gone then insert *
    {% endcall %}
{% endmacro %}
