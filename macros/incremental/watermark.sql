{#
    How far a table was read, in one way for all incremental models.

    Config follows names the upstream tables (macros/incremental/bounds.sql).
    What has been read stands in the properties of the model's own table,
    written after its rows; a batch that is read again changes nothing, so a
    crash in between is harmless:
    lakehouse.read.<schema>.<table> = <id of that table>/<batch>
    lakehouse.table-id: the id of the table itself. Iceberg keeps a table's uuid
        when it is replaced, and SQL cannot read it; this one is new after a full
        refresh, and when an upstream table has another id: readers then have
        to read everything again, whatever the numbers of batches say.
    lakehouse.noted-at: the snapshot that the notes are of. A table that was
        rolled back to an earlier one has lost rows that its notes count.
#}


{# What a run has to read: `upstreams`, for each followed table its name, note, id and the batches after `read` up to
   `until`, for a source also the day `since` which they landed; has_news if there are such batches; is_continued if the
   notes hold for all of them and the seeds are the same; table_id, '' without a table. #}
{% macro news_of(existing) %}
    {% set own = table_properties(existing) %}
    {% set is_trusted = existing is not none and not is_rolled_back(existing, own) %}
    {% set same_seeds = own.get('lakehouse.seeds', '') == seeds_read() %}
    {% set news = namespace(is_continued=is_trusted and same_seeds, has_news=false) %}
    {% set upstreams = [] %}
    {% for followed in followed_by(model) %}
        {% set note = 'lakehouse.read.' ~ followed.table.schema ~ '.' ~ followed.table.identifier %}
        {% set properties = table_properties(followed.reader or followed.table) %}
        {% set id = properties.get('lakehouse.table-id', '') %}
        {% set noted_id, is_noted, noted_batch = own.get(note, '').rpartition('/') %}
        {% set is_noted = is_trusted and is_noted and noted_id == id %}
        {% set read = noted_batch | int if is_noted else 0 %}
        {% set since = none %}
        {% if followed.is_source %}
            {% set newest, since = landed_after(landed_in(followed.table), read) %}
        {% else %}
            {% set newest = (
                properties.get(note, '').rpartition('/')[2] | int if followed.reader else read_until(properties)
            ) %}
        {% endif %}
        {% if not is_noted %}{% set news.is_continued = false %}{% endif %}
        {% if newest > read %}{% set news.has_news = true %}{% endif %}
        {% do upstreams.append({
            'name': followed.name, 'note': note, 'id': id, 'read': read, 'until': [read, newest] | max, 'since': since,
        }) %}
    {% endfor %}
    {% do return({
        'upstreams': upstreams,
        'is_continued': news.is_continued,
        'has_news': news.has_news,
        'table_id': own.get('lakehouse.table-id', ''),
    }) %}
{% endmacro %}


{# Until which batch of its source a table was read, by its properties; 0 if
   nothing is noted. #}
{% macro read_until(properties) %}
    {% for name, noted in properties.items() if name.startswith('lakehouse.read.') %}
        {% do return(noted.rpartition('/')[2] | int) %}
    {% endfor %}
    {% do return(0) %}
{% endmacro %}


{# The newest batch of a bronze table, and the first day on which a batch after `read` landed: from file statistics, no
   scan. #}
{% macro landed_after(relation, read) %}
    {% set found = adapter.get_relation(relation.database, relation.schema, relation.identifier) %}
    {% if not found %}{% do return((0, '1970-01-01')) %}{% endif %}
    {% set newest, since = run_query(
        'select coalesce(max(readable_metrics.ingest_batch.upper_bound), 0), cast(date(min('
        ~ 'if(readable_metrics.ingest_batch.upper_bound > ' ~ read ~ ', readable_metrics.ingested_at.lower_bound, null)'
        ~ ')) as string) from ' ~ found ~ '.files where content = 0'
    ).rows[0].values() %}
    {% do return((newest, since or '1970-01-01')) %}
{% endmacro %}


{# The properties of a table by name; none without a table. #}
{% macro table_properties(relation) %}
    {% set found = adapter.get_relation(relation.database, relation.schema, relation.identifier) if relation %}
    {% do return({} if not found or found.is_view else properties_of(found)) %}
{% endmacro %}


{% macro properties_of(table) %}
    {% do return(pairs_of('show tblproperties ' ~ table)) %}
{% endmacro %}


{# Whether a table was put back to before the snapshot that its notes are of:
   that one is there, but no longer in the line of the current one. #}
{% macro is_rolled_back(table, properties) %}
    {% set noted_at = properties.get('lakehouse.noted-at') %}
    {% if not noted_at or noted_at == properties.get('current-snapshot-id') %}{% do return(false) %}{% endif %}
    {% do return(run_query(
        'select count(*) from ' ~ table ~ '.snapshots where snapshot_id = ' ~ noted_at
        ~ ' and snapshot_id not in (select snapshot_id from ' ~ table ~ '.history where is_current_ancestor)'
    ).rows[0][0] > 0) %}
{% endmacro %}


{# Hashes of the seeds that this model reads, as their tables are: a file may have changed and not be loaded, for
   `dbt run` loads none. #}
{% macro seeds_read() %}
    {% set hashes = [] %}
    {% for unique_id in model.depends_on.nodes | sort if unique_id.startswith('seed.') %}
        {% set seed = graph.nodes[unique_id] %}
        {% do hashes.append(run_query(
            'select cast(sum(cast(xxhash64(*) as decimal(20, 0))) as string) from '
            ~ api.Relation.create(schema=seed.schema, identifier=seed.alias)
        ).rows[0][0]) %}
    {% endfor %}
    {% do return(hashes | join(' ')) %}
{% endmacro %}


{# Compiled SQL with the batches of a run in CTE `bounds`. The upper bounds
   matter because Spark may evaluate a slice twice while a new batch lands. #}
{% macro with_bounds(sql, news, rebuilds) %}
    {% set all_batches, batches = bounds(), {} %}
    {% if news.upstreams and all_batches not in sql %}
        {% do exceptions.raise_compiler_error(
            model.name ~ ' follows tables and has no CTE bounds. Start it with `bounds as ({{ bounds() }})`.'
        ) %}
    {% endif %}
    {% for upstream in news.upstreams %}
        {# no key is affected where all rows are computed #}
        {% set after = upstream.until if config.get('incremental_strategy') == 'affected_keys' else 0 %}
        {% do batches.update({upstream.name: {
            'after': after if rebuilds else upstream.read,
            'until': upstream.until,
            'since': upstream.since if upstream.read and not rebuilds else '1970-01-01',
        }}) %}
    {% endfor %}
    {% do return(sql | replace(all_batches, bounds(batches, rebuilds))) %}
{% endmacro %}


{# Note in a table what it has read now. What it has read of a table that it no longer reads, as of a source under
   its former identifier, is forgotten first: read_until() takes the first note that there is. #}
{% macro record_read(table, news, is_renewed) %}
    {% set before = properties_of(table) %}
    {% set properties = {
        'lakehouse.table-id': invocation_id if is_renewed or not news.table_id else news.table_id,
        'lakehouse.seeds': seeds_read(),
        'lakehouse.noted-at': before['current-snapshot-id'],
    } %}
    {% set masks = masks_behind(model.unique_id) %}
    {% if masks %}{% do properties.update({'lakehouse.masks': masks}) %}{% endif %}
    {% for upstream in news.upstreams %}
        {% do properties.update({upstream.note: upstream.id ~ '/' ~ upstream.until}) %}
    {% endfor %}
    {% set stale = [] %}
    {% for name in before if name.startswith('lakehouse.read.') and name not in properties %}
        {% do stale.append("'" ~ name ~ "'") %}
    {% endfor %}
    {% if stale %}
        {% do run_query('alter table ' ~ table ~ ' unset tblproperties (' ~ stale | join(', ') ~ ')') %}
    {% endif %}
    {% set assignments = [] %}
    {% for name, text in properties.items() %}
        {% do assignments.append("'" ~ name ~ "' = '" ~ text ~ "'") %}
    {% endfor %}
    {% do run_query('alter table ' ~ table ~ ' set tblproperties (' ~ assignments | join(', ') ~ ')') %}
{% endmacro %}
