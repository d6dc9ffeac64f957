{#
    What the result of a node follows from: its SQL, config and engine, and the relations that its SQL names, also
    below views. dbt does not know all of them (every_stored_table).
#}


{# The note of a node before it runs, or the reason why it is never skipped, as a text. #}
{% macro new_note(sql) %}
    {% set states, inputs = node_states(), {} %}
    {% if not states.is_noting %}{% do return('this command notes nothing') %}{% endif %}
    {% if model.resource_type == 'test' and should_store_failures() %}{% do return('it stores failures') %}{% endif %}
    {% if model.resource_type == 'seed' and model.checksum.name != 'sha256' %}
        {% do return('its file is too large to compare') %}
    {% endif %}
    {% set code = tojson({
        'version': 1, 'engine': states.engine, 'sql': sql, 'name': this | string, 'config': model.config,
        'description': model.description, 'columns': model.columns, 'file': model.checksum,
    }, sort_keys=true) %}
    {% if code is none %}{% do return('its config cannot be compared') %}{% endif %}
    {% set scanned = scan(sql) %}
    {# What is new decides whether a model that follows tables runs, and not the rows that its SQL would give. #}
    {% if model.config.follows %}{% do scanned.update({'volatile': ''}) %}{% endif %}
    {% set unknown = add_inputs(inputs, scanned, schemas_only=model.config.materialized == 'view') %}
    {% if inputs.get('masking key') == '' %}{% do return('the masking key was not checked') %}{% endif %}
    {% do return(unknown or {'fingerprint': local_md5(code), 'inputs': inputs}) %}
{% endmacro %}


{# Add to the inputs of a note what scanned SQL names, also below views; the reason if its result does not follow from
   that. A view keeps the columns of its tables, so it follows from their columns alone. #}
{% macro add_inputs(inputs, scanned, schemas_only) %}
    {% set states = node_states() %}
    {% if scanned.reads_key %}{% do inputs.update({'masking key': states.key_version}) %}{% endif %}
    {% if scanned.volatile %}{% do return(scanned.volatile) %}{% endif %}
    {% for name in scanned.relations if name not in inputs %}
        {% set description = described(name) %}
        {% do inputs.update({name: (description.schema if schemas_only else description.content) if description}) %}
        {% if not inputs[name] %}{% do return(name ~ ' is no Iceberg table or view') %}{% endif %}
        {% if description.is_view and description.marker not in states.views %}
            {% do return('the view ' ~ name ~ ' is not as a noted build left it') %}
        {% endif %}
        {% set unknown = add_inputs(inputs, description.scanned, schemas_only) if description.is_view %}
        {% if unknown %}{% do return(unknown) %}{% endif %}
    {% endfor %}
    {% do return('') %}
{% endmacro %}


{# The inputs that differ from those of the stored note, as a text. #}
{% macro changed_inputs(stored, note) %}
    {% set before, changed = fromjson(stored.inputs or '{}'), [] %}
    {% for name in (before | list + note.inputs | list) | unique | sort if before.get(name) != note.inputs.get(name) %}
        {% do changed.append(name) %}
    {% endfor %}
    {% do return(changed | join(', ')) %}
{% endmacro %}


{# The schemas of the project's relations. It reads the graph, as a review allows the macros of this folder alone. #}
{% macro project_schemas() %}
    {% set states = node_states() %}
    {% if not states.schemas %}
        {% set nodes = graph.nodes.values() | list + graph.sources.values() | list %}
        {% do states.update({'schemas': nodes | map(attribute='schema') | unique | sort}) %}
    {% endif %}
    {% do return(states.schemas) %}
{% endmacro %}
