{#
    Models whose rows come from several deduplicated tables (keep='recomputed').

    Such a model begins with a CTE `affected`: the keys whose rows may have
    changed, found by `where changed_in(ref('int_..._deduplicated'))` in each
    table that it follows. Its other CTEs are limited by in_affected('<key>').
    A run puts the rows of the affected keys in the place of those the table
    has, by one MERGE: rows are inserted, updated, and deleted when there are
    no such rows any more.

    Config: unique_key, and affected_key if `affected` holds something else of
    the table's rows than that, for instance the order of order lines.

    How far each table was read is kept in the properties of the model's own
    table, written after the MERGE. Reading a batch again changes nothing, so a
    crash in between is harmless. A change of a seed or of the columns affects
    every row: such a table is refused until it is built with --full-refresh.
#}


{# The predicate that a row of a deduplicated table is news to this model. The
   comment tells the materialization how far the model has read. A model that
   takes the rows from a third table reads `through` that one: until where it
   has read itself, for a run may have left it out. #}
{% macro changed_in(relation, through=none) %}
    {%- if not execute or model.resource_type == 'unit_test' -%}
        true
    {%- else -%}
        {%- set newest = read_until(through, relation.identifier) if through else newest_batch(relation) -%}
        {%- set read = read_until(this, relation.identifier) if is_incremental() else 0 -%}
        ingest_batch > {{ read }} and ingest_batch <= {{ newest }} /* of {{ relation.identifier }} */
    {%- endif -%}
{% endmacro %}


{# The predicate that limits a CTE to the keys in another, which has them in a column
   of the same name: true on a first run or full refresh. #}
{% macro in_affected(column, affected='affected') -%}
    {%- if is_incremental() -%}
        {{ column }} in (select {{ affected }}.{{ column }} from {{ affected }})
    {%- else -%}
        true
    {%- endif -%}
{%- endmacro %}


{# The newest batch in a deduplicated table, from file statistics, no scan. #}
{% macro newest_batch(relation) %}
    {% set found = adapter.get_relation(relation.database, relation.schema, relation.identifier) %}
    {% if not found %}{% do return(0) %}{% endif %}
    {% do return(run_query(
        'select coalesce(max(readable_metrics.ingest_batch.upper_bound), 0)'
        ~ ' from ' ~ found ~ '.files where content = 0'
    ).rows[0][0]) %}
{% endmacro %}


{# The batch of an upstream table that a model's table has been read until. #}
{% macro read_until(table, upstream) %}
    {% do return(table_property(table, 'lakehouse.read-until.' ~ upstream) | int) %}
{% endmacro %}


{# A property of a table, '' if it has none of this name or there is no table. #}
{% macro table_property(table, name) %}
    {% if not adapter.get_relation(table.database, table.schema, table.identifier) %}{% do return('') %}{% endif %}
    {% set properties = run_query('show tblproperties ' ~ table).rows %}
    {% do return(properties | selectattr(0, 'equalto', name) | map(attribute=1) | first | default('')) %}
{% endmacro %}


{# The checksums of the seeds that this model reads. #}
{% macro seeds_read() %}
    {% set checksums = [] %}
    {% for unique_id in model.depends_on.nodes | sort if unique_id.startswith('seed.') %}
        {% do checksums.append(graph.nodes[unique_id].checksum.checksum) %}
    {% endfor %}
    {% do return(checksums | join(' ')) %}
{% endmacro %}


{# Refuse a table that an increment would leave half old. #}
{% macro require_same_shape(table) %}
    {% set columns = adapter.get_columns_in_relation(table) | map(attribute='name') | list %}
    {% set changed = [] %}
    {% if model.columns and columns != model.columns.keys() | list %}
        {% do changed.append('columns') %}
    {% endif %}
    {% if table_property(table, 'lakehouse.seeds') not in (seeds_read(), '') %}
        {% do changed.append('reference data') %}
    {% endif %}
    {% if changed %}
        {% do exceptions.raise_compiler_error(
            table ~ ' was built with other ' ~ changed | join(' and ')
            ~ '. Run `dbt build --full-refresh --select ' ~ model.name ~ '+`.'
        ) %}
    {% endif %}
{% endmacro %}


{# What the run of a compiled model reads: from each table that has news, as
   {table: newest batch}; none if the model is not limited to news. #}
{% macro news(sql) %}
    {% set found = modules.re.findall(
        'ingest_batch > ([0-9]+) and ingest_batch <= ([0-9]+) /\* of ([a-z0-9_]+) \*/', sql
    ) %}
    {% if not found %}{% do return(none) %}{% endif %}
    {% set newest = {} %}
    {% for read, until, table in found if until | int > read | int %}
        {% do newest.update({table: until}) %}
    {% endfor %}
    {% do return(newest) %}
{% endmacro %}


{% macro record_read_until(table, newest) %}
    {% set properties = ["'lakehouse.seeds' = '" ~ seeds_read() ~ "'"] %}
    {% for upstream, batch in newest.items() %}
        {% do properties.append("'lakehouse.read-until." ~ upstream ~ "' = '" ~ batch ~ "'") %}
    {% endfor %}
    {% do run_query('alter table ' ~ table ~ ' set tblproperties (' ~ properties | join(', ') ~ ')') %}
{% endmacro %}


{# The increment. Every model ends in `select * from final`; the same query
   that ends in `select * from affected` gives the affected keys. Rows of
   affected keys are written even if they are as before: to compare them, the
   MERGE would have to read every column of the table instead of the key. #}
{% macro merge_recomputed(target, sql) %}
    {% set recomputed = make_temp_relation(target, '__recomputed') %}
    {% set affected = make_temp_relation(target, '__affected') %}
    {% call statement('recomputed') %}
        {{ create_table_as(true, recomputed, sql) }}
    {% endcall %}
    {% call statement('affected') %}
        {{ create_table_as(true, affected, sql.rpartition('select * from final')[0] ~ 'select * from affected') }}
    {% endcall %}
    {% set key = config.require('unique_key') %}
    {% set affected_key = config.get('affected_key', key) %}
    {% call statement('main') %}
        merge into {{ target }} as kept
        using (
            select
                recomputed.*,
                coalesce(recomputed.{{ key }}, known.{{ key }}) as merge_key,
                recomputed.{{ key }} is null as is_gone
            from {{ recomputed }} as recomputed
            full outer join (
                {% if affected_key == key %}
                select * from {{ affected }}
                {% else %}
                select {{ key }} from {{ target }}
                where {{ affected_key }} in (select * from {{ affected }})
                {% endif %}
            ) as known
                on recomputed.{{ key }} = known.{{ key }}
        ) as news
        on kept.{{ key }} = news.merge_key
        when matched and news.is_gone then delete
        when matched then update set *
        when not matched and not news.is_gone then insert *
    {% endcall %}
{% endmacro %}
