{#
    What a model has read of each followed table (macros/incremental/bounds.sql), in the properties of the model's table.
    They are written after its rows; a batch that is read again changes nothing, so a crash in between is harmless.

    lakehouse.read.<schema>.<table> = <id of that table>/<batch>
    lakehouse.table-id: the id of the table itself. Iceberg keeps a table's uuid when it is replaced, and SQL cannot
        read it. This id changes with a full refresh, and when an upstream table has another id: readers then read
        everything again, whatever the numbers of batches are.
    lakehouse.noted-at: the snapshot that these properties describe. A table that was rolled back to an earlier one has
        lost rows of batches that they count.
#}


{# The batches that a run has to read: `upstreams`, per followed table its name, note, id and the batches after `read`
   up to `until`, of a source also the day `since` which they landed; `exist`, whether there are any; is_continued,
   whether the properties hold for all of them and the seeds are the same; table_id, '' without a table. #}
{% macro unread_batches(existing) %}
    {% set known = table_properties(existing) %}
    {% set is_trusted = existing is not none and not is_rolled_back(existing, known) %}
    {% set has_same_seeds = known.get('lakehouse.seeds', '') == seeds_read() %}
    {% set unread = namespace(is_continued=is_trusted and has_same_seeds, exist=false) %}
    {% set upstreams = [] %}
    {% for followed in followed_by(model) %}
        {% set note = 'lakehouse.read.' ~ followed.table.schema ~ '.' ~ followed.table.identifier %}
        {% set properties = table_properties(followed.reader or followed.table) %}
        {% set id = properties.get('lakehouse.table-id', '') %}
        {% set is_read = is_trusted and note in known and known[note].rpartition('/')[0] == id %}
        {% set read = batch_of(known[note]) if is_read else 0 %}
        {% set since = none %}
        {% if followed.is_source %}
            {% set newest, since = landed_after(followed.table, read) %}
        {% else %}
            {% set newest = batch_of(properties.get(note, '')) if followed.reader else read_until(properties) %}
        {% endif %}
        {% if not is_read %}{% set unread.is_continued = false %}{% endif %}
        {% if newest > read %}{% set unread.exist = true %}{% endif %}
        {% do upstreams.append({
            'name': followed.name, 'note': note, 'id': id, 'read': read, 'until': [read, newest] | max, 'since': since,
        }) %}
    {% endfor %}
    {% do return({
        'upstreams': upstreams,
        'is_continued': unread.is_continued,
        'exist': unread.exist,
        'table_id': known.get('lakehouse.table-id', ''),
    }) %}
{% endmacro %}


{# The batch in a property lakehouse.read, 0 if that is empty. #}
{% macro batch_of(property) %}
    {% do return(property.rpartition('/')[2] | int) %}
{% endmacro %}


{# The batch of its source until which a table was read, by its properties; 0 if they have none. #}
{% macro read_until(properties) %}
    {% for name, property in properties.items() if name.startswith('lakehouse.read.') %}
        {% do return(batch_of(property)) %}
    {% endfor %}
    {% do return(0) %}
{% endmacro %}


{# The newest batch of a bronze table, and the first day on which a batch after `read` landed: from file statistics,
   without a scan. #}
{% macro landed_after(relation, read) %}
    {% set table = adapter.get_relation(relation.database, relation.schema, relation.identifier) %}
    {% if not table %}{% do return((0, none)) %}{% endif %}
    {% do return(run_query(
        'select coalesce(max(readable_metrics.ingest_batch.upper_bound), 0), cast(date(min('
        ~ 'if(readable_metrics.ingest_batch.upper_bound > ' ~ read ~ ', readable_metrics.ingested_at.lower_bound, null)'
        ~ ')) as string) from ' ~ table ~ '.files where content = 0'
    ).rows[0].values()) %}
{% endmacro %}


{# The properties of a table by name; empty without a table. #}
{% macro table_properties(relation) %}
    {% set description = described(relation.schema ~ '.' ~ relation.identifier) if execute and relation %}
    {% do return(description.properties if description and not description.is_view else {}) %}
{% endmacro %}


{# Whether a table was rolled back to before lakehouse.noted-at: that snapshot exists and is no ancestor. #}
{% macro is_rolled_back(table, properties) %}
    {% set noted_at = properties.get('lakehouse.noted-at') %}
    {% if not noted_at or noted_at == properties.get('current-snapshot-id') %}{% do return(false) %}{% endif %}
    {% do return(run_query(
        'select count(*) from ' ~ table ~ '.snapshots where snapshot_id = ' ~ noted_at
        ~ ' and snapshot_id not in (select snapshot_id from ' ~ table ~ '.history where is_current_ancestor)'
    ).rows[0][0] > 0) %}
{% endmacro %}


{# Hashes of the tables of the seeds that this model reads. A changed file may not be loaded: `dbt run` loads none. #}
{% macro seeds_read() %}
    {% set hashes = [] %}
    {% for unique_id in model.depends_on.nodes | sort if unique_id.startswith('seed.') %}
        {% do hashes.append(run_query(
            'select cast(sum(cast(xxhash64(*) as decimal(20, 0))) as string) from '
            ~ graph.nodes[unique_id].schema ~ '.' ~ graph.nodes[unique_id].alias
        ).rows[0][0]) %}
    {% endfor %}
    {% do return(hashes | join(' ')) %}
{% endmacro %}


{# Have the model's SQL read the batches of this run. The upper bounds matter: Spark may evaluate a slice twice while a
   batch lands. #}
{% macro set_bounds(unread, rebuilds, are_few=false) %}
    {% set run_bounds = {'is_rebuild': rebuilds, 'are_few': are_few} %}
    {% for upstream in unread.upstreams %}
        {# no key is affected where all rows are computed #}
        {% set after = upstream.until if config.get('incremental_strategy') == 'affected_keys' else 0 %}
        {% do run_bounds.update({
            upstream.name ~ '_after': after if rebuilds else upstream.read,
            upstream.name ~ '_until': upstream.until,
        }) %}
        {% if upstream.read and upstream.since and not rebuilds %}
            {% do run_bounds.update({upstream.name ~ '_since': upstream.since}) %}
        {% endif %}
    {% endfor %}
    {% do run_query('set `lakehouse.bounds`=`' ~ tojson(run_bounds) ~ '`') %}
{% endmacro %}


{# Record in the properties of a table what it has read now. Those of tables that it no longer reads, as of a source
   under its former identifier, are removed first: read_until() takes the first one. #}
{% macro record_read(table, unread, is_renewed) %}
    {% set before = pairs_of('show tblproperties ' ~ table) %}
    {% set properties = {
        'lakehouse.table-id': invocation_id if is_renewed or not unread.table_id else unread.table_id,
        'lakehouse.seeds': seeds_read(),
        'lakehouse.noted-at': before['current-snapshot-id'],
    } %}
    {% set masks = masks_behind(model.unique_id) %}
    {% if masks %}{% do properties.update({'lakehouse.masks': masks}) %}{% endif %}
    {% for upstream in unread.upstreams %}
        {% do properties.update({upstream.note: upstream.id ~ '/' ~ upstream.until}) %}
    {% endfor %}
    {% set stale = [] %}
    {% for name in before if name.startswith('lakehouse.read.') and name not in properties %}
        {% do stale.append(name) %}
    {% endfor %}
    {% if stale %}
        {% do run_query('alter table ' ~ table ~ " unset tblproperties ('" ~ stale | join("', '") ~ "')") %}
    {% endif %}
    {% set assignments = [] %}
    {% for name, text in properties.items() %}{% do assignments.append("'" ~ name ~ "' = '" ~ text ~ "'") %}{% endfor %}
    {% do run_query('alter table ' ~ table ~ ' set tblproperties (' ~ assignments | join(', ') ~ ')') %}
{% endmacro %}
