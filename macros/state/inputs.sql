{#
    What the result of a node follows from: its SQL, config and engine, and the relations that its SQL reads, also below
    views. dbt does not know all of them (every_stored_table). Spark's analyser does: it is asked when a node runs. What
    it finds is noted, and later runs compare what was noted.
#}


{# Why a node is never skipped, whatever it reads; '' if it may be. #}
{% macro never_skipped() %}
    {% if not node_states().is_noting %}{% do return('this command notes nothing') %}{% endif %}
    {% if model.resource_type == 'test' and should_store_failures() %}{% do return('it stores failures') %}{% endif %}
    {% set is_large = model.resource_type == 'seed' and model.checksum.name != 'sha256' %}
    {% do return('its file is too large to compare' if is_large else '') %}
{% endmacro %}


{# A hash of what a node is apart from its inputs; none if its config cannot be compared. #}
{% macro fingerprint_of(sql) %}
    {% set code = tojson({
        'version': 2, 'engine': node_states().engine, 'sql': sql, 'name': this | string, 'config': model.config,
        'description': model.description, 'columns': model.columns, 'file': model.checksum,
    }, sort_keys=true) %}
    {% do return(local_md5(code) if code is not none) %}
{% endmacro %}


{# The inputs of a node before it runs, or the reason why it is never skipped, as a text. #}
{% macro inputs_of(sql) %}
    {% set states, inputs, found = node_states(), {}, sources_of(sql) if sql else {'relations': []} %}
    {# What is new decides whether a model that follows tables runs, and not the rows that its SQL would give. #}
    {% set reason = found.unknown or (found.volatile if not model.config.follows) %}
    {% if reason %}{% do return(reason) %}{% endif %}
    {% for name in found.relations %}
        {% if name == 'spark_catalog.default.pii_pads' %}
            {% if not states.key_version %}{% do return('the masking key was not checked') %}{% endif %}
            {% do inputs.update({'masking key': states.key_version}) %}
        {% else %}
            {% set description = described(name) if name.count('.') == 1 %}
            {% if not description or not description.schema %}
                {% do return(name ~ ' is no Iceberg table or view') %}
            {% elif description.is_view and description.marker not in states.views %}
                {% do return('the view ' ~ name ~ ' is not as a noted build left it') %}
            {% endif %}
            {% do inputs.update({name: input_of(name)}) %}
        {% endif %}
    {% endfor %}
    {% do return(inputs) %}
{% endmacro %}


{# What an input is now; none if it is missing. A view keeps the columns of its tables, so it follows from their columns
   alone. #}
{% macro input_of(name) %}
    {% if name == 'masking key' %}{% do return(node_states().key_version) %}{% endif %}
    {% set description = described(name) or {} %}
    {% do return(description.schema if model.config.materialized == 'view' else description.content) %}
{% endmacro %}


{# What Spark finds that a query reads (python_common/spark/classes/SqlSources.java): `relations`, and why its result
   does not follow from them, in `volatile`, or why they are not all, in `unknown`. #}
{% macro sources_of(sql) %}
    {# Spark replaces ${...} before it parses a statement. #}
    {% set text = sql | replace('\\', '\\\\') | replace("'", "\\'") | replace('$', '\\u0024') %}
    {% do return(fromjson(run_query("select lakehouse_sources('" ~ text ~ "')").rows[0][0])) %}
{% endmacro %}


{# The names of noted inputs that are not as they were, as a text. #}
{% macro changed_inputs(noted) %}
    {% set changed = [] %}
    {% for name, value in fromjson(noted).items() if input_of(name) != value %}{% do changed.append(name) %}{% endfor %}
    {% do return(changed | join(', ')) %}
{% endmacro %}
