{#
    State-aware builds: a node whose SQL, config and inputs equal those of its last success is not run again, and its
    result is `unchanged` (docs/state.md). ops.node_states has a row per node:

    fingerprint: a hash of SQL, config and engine;
    inputs: what the relations that its SQL reads were, as JSON (macros/state/inputs.sql);
    marker: what the node's table or view was afterwards; '' for a test.

    A row proves itself by being equal to what a run sees, so none has to be deleted, after a rollback for instance.
#}


{# What the threads of one dbt command share. #}
{% macro node_states() %}
    {% do return(graph.setdefault('node_states ' ~ invocation_id, {
        'is_noting': false, 'is_skipping': false, 'engine': '', 'key_version': '', 'passed': none,
        'stored': {}, 'views': [], 'described': {}, 'written': [], 'notes': {}, 'unchanged': {}, 'affected': {},
    })) %}
{% endmacro %}


{# Runs before every command that writes: read the notes of former runs, and what all relations are. #}
{% macro load_node_states() %}
    {% if not execute or flags.WHICH not in ('build', 'run', 'test', 'seed', 'snapshot', 'retry') %}
        {% do return('') %}
    {% endif %}
    {% do require_functions() %}
    {% set states = node_states() %}
    {% if not adapter.get_relation(none, 'ops', 'node_states') %}
        {% do run_query('create schema if not exists ops') %}
        {% do run_query(
            'create table if not exists ops.node_states (unique_id string, fingerprint string, inputs string,'
            ~ ' marker string) using iceberg'
        ) %}
    {% endif %}
    {% set rows = run_query(
        "select '' as unique_id, concat(version(), current_timezone()) as fingerprint, '' as inputs, '' as marker,"
        ~ ' 0 as failures, false as should_warn, false as should_error union all'
        ~ ' select unique_id, fingerprint, inputs, marker, 0, false, false from ops.node_states'
    ) %}
    {% for row in rows.rows %}
        {% do states.stored.update({row[0]: {'fingerprint': row[1], 'inputs': row[2], 'marker': row[3]}}) %}
        {% do states.views.append(row[3]) %}{# those of tables match no view #}
    {% endfor %}
    {% set settings = [dbt_version, target.name, target.user, states.stored.pop('').fingerprint] %}
    {# Not where the tables are: in a fork of the lake they are elsewhere. #}
    {% for name, value in run_query('set').rows
        if (name.startswith('spark.sql.') or name.endswith('JavaOptions'))
        and not name.startswith(('spark.sql.catalog.', 'spark.sql.warehouse.dir')) %}
        {% do settings.append(name ~ '=' ~ value) %}
    {% endfor %}
    {% do states.update({
        'engine': local_md5(settings | join('\n')),
        'passed': rows.select(['failures', 'should_warn', 'should_error']).limit(1),
        'is_noting': not flags.EMPTY,
        'is_skipping': var('skip_unchanged', true) and not flags.FULL_REFRESH and not writers_unseen(),
    }) %}
    {# dbt_project.yml has dbt list no schema: it opens a connection for each #}
    {% set nodes = graph.nodes.values() | list + graph.sources.values() | list %}
    {% for schema in nodes | map(attribute='schema') | unique %}
        {% do adapter.get_relation(none, schema, 'any') %}
    {% endfor %}
    {% if selected_resources | length > 50 %}{% do describe_all() %}{% endif %}
{% endmacro %}


{# Describe all relations of the project in one connection: of few nodes each asks by itself. #}
{% macro describe_all() %}
    {% set names = [] %}
    {% for node in graph.nodes.values() | list + graph.sources.values() | list
        if node.resource_type in ('model', 'seed', 'snapshot', 'source') %}
        {% do names.append(node.schema ~ '.' ~ (node.alias or node.identifier)) %}
    {% endfor %}
    {% for name, description in describe_many(names).items() %}
        {% do node_states().described.update({name ~ ' 0': description}) %}
    {% endfor %}
{% endmacro %}


{# Raise if Spark lacks the functions by which models know their bounds, and builds what they may skip. #}
{% macro require_functions() %}
    {% if not run_query("show functions like 'lakehouse_bound'").rows %}
        {% do exceptions.raise_compiler_error(
            'Spark has no function lakehouse_bound. Add LakehouseExtensions to spark.sql.extensions, and lakehouse.jar'
            ~ ' to the class path of its driver (docs/state.md); a local server has them after `make setup` and a restart.'
        ) %}
    {% endif %}
{% endmacro %}


{# Nodes that may write to any table: those with hooks, and those of other materializations than the ones that call
   after_run(). A description of such a table may be outdated. #}
{% macro writers_unseen() %}
    {% set seen, names = ('table', 'view', 'incremental', 'ephemeral', 'seed', 'snapshot', 'test', 'unit'), [] %}
    {% for node in graph.nodes.values() if node.resource_type not in ('operation', 'analysis')
        and (node.config['pre-hook'] or node.config['post-hook'] or node.config.materialized not in seen) %}
        {% do names.append(node.name) %}
    {% endfor %}
    {% if names %}{% do log('node states: nothing is skipped, because of ' ~ names | join(', ')) %}{% endif %}
    {% do return(names) %}
{% endmacro %}


{# Runs at the end: store the notes of nodes that succeeded. A note whose inputs another program changed meanwhile is
   omitted: which rows its node has read is unknown. #}
{% macro save_node_states(results) %}
    {% set states, notes, read, lines = node_states(), {}, [], [] %}
    {% for result in results if result.status in ('pass', 'success') and result.node.unique_id in states.notes %}
        {% set note = states.notes[result.node.unique_id] %}
        {% do notes.update({result.node.unique_id: note}) %}
        {% do read.extend(note.inputs) %}
    {% endfor %}
    {% if not execute or not notes %}{% do return('') %}{% endif %}
    {% set now = describe_many(read | reject('equalto', 'masking key')) %}
    {% for unique_id, note in notes.items() %}
        {% set changed = [] %}
        {% for name, seen in note.inputs.items() if name != 'masking key'
            and (name not in now or seen not in (now[name].schema, now[name].content)) %}
            {% do changed.append(name) %}
        {% endfor %}
        {% if not changed %}
            {% do states.stored.update({unique_id: dict(note, inputs=tojson(note.inputs, sort_keys=true))}) %}
        {% endif %}
    {% endfor %}
    {% for unique_id, note in states.stored.items() if unique_id in graph.nodes %}
        {% do lines.append("('" ~ [unique_id, note.fingerprint, note.inputs, note.marker] | join("', '") ~ "')") %}
    {% endfor %}
    {% if not lines %}{% do return('') %}{% endif %}
    {# Of two builds that end at once the notes of one stay, and the nodes of the other run again. #}
    {% do run_query('insert overwrite ops.node_states values ' ~ lines | join(', ')) %}
{% endmacro %}


{# Whether the node may be left as it is; decides before it runs, from what its noted inputs are then. If not, Spark
   finds its inputs, and the snapshot that it commits next has its fingerprint, by which after_run() knows it. #}
{% macro is_unchanged(sql) %}
    {% set states, stored = node_states(), node_states().stored.get(model.unique_id, {}) %}
    {% set is_test = model.resource_type == 'test' %}
    {% set current = {'marker': ''} if is_test else described(this.schema ~ '.' ~ this.identifier) %}
    {% set never, fingerprint = never_skipped(), fingerprint_of(sql) %}
    {% set changed = changed_inputs(stored.inputs) if stored and not never and stored.fingerprint == fingerprint %}
    {% set reason = (
        never if never
        else 'its config cannot be compared' if fingerprint is none
        else 'no success is noted' if not stored
        else 'its SQL, config or engine changed' if stored.fingerprint != fingerprint
        else changed ~ ' changed' if changed
        else this ~ ' changed' if not current or current.marker != stored.marker
        else 'skipping is off' if not states.is_skipping
        else 'unchanged'
    ) %}
    {% set inputs = reason if never or fingerprint is none else inputs_of(sql) if reason != 'unchanged' %}
    {% do log('node state: ' ~ model.unique_id ~ ': ' ~ (inputs if inputs is string else reason)) %}
    {% if reason == 'unchanged' %}{% do states.unchanged.update({model.unique_id: current.snapshot}) %}{% endif %}
    {% if reason == 'unchanged' or inputs is string %}{% do return(reason == 'unchanged') %}{% endif %}
    {% do states.notes.update({
        model.unique_id: {'fingerprint': fingerprint, 'inputs': inputs, 'marker': '', 'before': current},
    }) %}
    {% if not is_test %}
        {% do run_query('set `spark.sql.iceberg.snapshot-property.lakehouse.built-from`=' ~ fingerprint) %}
    {% endif %}
    {% do return(false) %}
{% endmacro %}


{# Complete the note of a node that has written its table or view; drop it if another program may have written, too: the
   snapshot must be of the node, and of a seed its only one. #}
{% macro after_run() %}
    {% set states, name = node_states(), this.schema ~ '.' ~ this.identifier %}
    {% do states.written.append(name) %}
    {% set note = states.notes.pop(model.unique_id, none) %}
    {% set after = described(name) if note %}
    {% if not after %}{% do return('') %}{% endif %}
    {% if after.is_view %}
        {# Spark drops comments before the SQL of a view, and blanks behind it. #}
        {% set sql = modules.re.sub('^(\\s*--[^\n]*\n)+', '', compiled_code).strip() %}
        {% if after.text.strip() != sql %}{% do return('') %}{% endif %}
        {% do states.views.append(after.marker) %}
    {% endif %}
    {% set is_committed = not after.is_view and not (note.before and note.before.snapshot == after.snapshot) %}
    {% set is_own = after.built_from == note.fingerprint and (model.resource_type != 'seed' or after.is_first_commit) %}
    {% if is_committed and not is_own %}{% do return('') %}{% endif %}
    {% do states.notes.update({model.unique_id: dict(note, marker=after.marker)}) %}
{% endmacro %}
