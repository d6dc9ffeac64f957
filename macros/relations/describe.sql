{#
    What a table or view is, by Spark's catalog, without a job (python_common/spark/classes/Relations.java). A description
    has hashes and what they are made of: schema, of a table's columns; content, of these and the snapshot; marker, of
    all that is known but for the tags of tested weeks, which are set at the end of a run, and what a fork of the lake
    changes. Of a view all three are one hash.
#}


{# The description of a relation as this command saw it first, or after its last write; none if it is missing. The
   number of writes is in the key, so what another thread asks before a write is not mistaken for what is after it. #}
{% macro described(name) %}
    {% set states = node_states() %}
    {% set key = name ~ ' ' ~ states.written.count(name) %}
    {% if key not in states.described %}
        {% do states.described.update({key: describe_many([name]).get(name)}) %}
    {% endif %}
    {% do return(states.described[key]) %}
{% endmacro %}


{# The descriptions of relations as they are now, by name. One that is missing or cannot be read has none. #}
{% macro describe_many(names) %}
    {% set descriptions, listed = {}, names | unique | join(' ') | replace("'", "\\'") %}
    {% set answer = run_query("select lakehouse_relations('" ~ listed ~ "')").rows[0][0] if listed else '{}' %}
    {% for name, relation in fromjson(answer).items() %}
        {% do descriptions.update({name: with_hashes(relation)}) %}
    {% endfor %}
    {% do return(descriptions) %}
{% endmacro %}


{% macro with_hashes(relation) %}
    {% if relation.is_view %}
        {% set hash = local_md5(tojson(relation, sort_keys=true)) %}
        {% do return(dict(relation, schema=hash, content=hash, marker=hash)) %}
    {% endif %}
    {% set excluded = ('lakehouse.sql.', 'lakehouse.fork-of', 'gc.enabled', 'write.metadata.delete-after-commit') %}
    {% set types, comments, lasting = [relation.schema_id], {}, [relation.columns, relation.partitions] %}
    {% for name, type, comment in relation.columns %}
        {% do types.append([name, type]) %}
        {% do comments.update({name: comment}) %}
    {% endfor %}
    {% for name, value in relation.properties | dictsort if not name.startswith(excluded) %}
        {% do lasting.append([name, value]) %}
    {% endfor %}
    {% do return(dict(
        relation,
        comments=comments,
        schema=local_md5(tojson(types)),
        content=local_md5(tojson([relation.snapshot, types])),
        marker=local_md5(tojson([types, lasting])),
    )) %}
{% endmacro %}
