{#
    Runs at the end of every command that writes: only what this run has built and tested may be exported. For each
    export model whose tests have all passed, it tags the snapshot that the run wrote, or left unchanged, tested-<week>.
    No tag moves if one of the tests failed or was not selected, if a test of what the model comes from failed, or if
    another run has written to the table meanwhile. Compaction keeps the rows: its snapshots are passed over.

    If the run has built all models behind the export, the table property lakehouse.sql.<week> has the snapshot and the
    SHA-256 of their compiled SQL: `export run --no-build` publishes what comes from the SQL that it has proven. The
    summary of the snapshot cannot have it: dbt shows the SQL of other models only after the model is written.
#}
{% macro tag_tested(results) %}
    {% if not execute %}{% do return('') %}{% endif %}
    {% set passed, failed, built = [], [], {} %}
    {% for result in results %}
        {% set node = result.node %}
        {% if node.resource_type == 'model' and result.status == 'success' %}
            {% do built.update({node.unique_id: node}) %}
        {% elif node.resource_type == 'test' and result.status in ('pass', 'warn') %}
            {% do passed.append(node.unique_id) %}
        {# A test over several models is skipped because another of them failed. #}
        {% elif node.resource_type == 'test' and result.status != 'skipped' %}
            {% do failed.extend([node.attached_node] if node.attached_node else node.depends_on.nodes) %}
        {% endif %}
    {% endfor %}
    {% for node in built.values() if node.config.meta.export %}
        {% set untested = [] %}
        {% for test in graph.nodes.values()
            if test.resource_type == 'test' and test.attached_node == node.unique_id
            and test.unique_id not in passed %}
            {% do untested.append(test.name) %}
        {% endfor %}
        {% if not untested and not lineage_of(node.unique_id) | select('in', failed) | list %}
            {% do tag_snapshot(node, built) %}
        {% endif %}
    {% endfor %}
{% endmacro %}


{# A node and all that it comes from. The list grows while the loop reads it. #}
{% macro lineage_of(unique_id) %}
    {% set unique_ids = [unique_id] %}
    {% for node_id in unique_ids %}
        {% for upstream in graph.nodes.get(node_id, {}).get('depends_on', {}).get('nodes', []) %}
            {% if upstream not in unique_ids %}{% do unique_ids.append(upstream) %}{% endif %}
        {% endfor %}
    {% endfor %}
    {% do return(unique_ids) %}
{% endmacro %}


{# The SHA-256 of the SQL of a model and all that it comes from; '' if the run has not built all of it. #}
{% macro sql_digest(unique_id, built) %}
    {% set lines = [] %}
    {% for node_id in lineage_of(unique_id) | sort if node_id.startswith('model.') %}
        {% if node_id not in built %}{% do return('') %}{% endif %}
        {# the weeks that a run names do not change what the SQL lets out #}
        {% set weeks = "'[0-9]{4}-W[0-9]{2}'(, '[0-9]{4}-W[0-9]{2}')*" %}
        {% do lines.append(node_id ~ '\n' ~ modules.re.sub(weeks, '', built[node_id].compiled_code)) %}
    {% endfor %}
    {% set text = lines | join('\n') | replace('\\', '\\\\') | replace("'", "\\'") %}
    {% do return(run_query("select sha2('" ~ text ~ "', 256)").rows[0][0]) %}
{% endmacro %}


{# Tag the snapshot of a model's table if this run wrote it, or left it unchanged and it has another tag or SQL. #}
{% macro tag_snapshot(node, built) %}
    {% set table = node.schema ~ '.' ~ node.alias %}
    {% set unchanged = node_states().unchanged.get(node.unique_id) %}
    {% if unchanged %}
        {% set tags = pairs_of('select name, snapshot_id from ' ~ table ~ '.refs') %}
        {% set snapshot = tags.main if tags.main | string == unchanged %}
    {% else %}
        {% set newest = run_query(
            "select snapshot_id, summary['lakehouse.invocation-id'] from " ~ table ~ '.snapshots'
            ~ ' where snapshot_id in (select snapshot_id from ' ~ table ~ '.history where is_current_ancestor)'
            ~ " and operation <> 'replace' order by committed_at desc limit 1"
        ).rows | first %}
        {% set tags, snapshot = {}, newest[0] if newest and newest[1] == invocation_id %}
    {% endif %}
    {% if snapshot %}
        {% set digest = snapshot ~ '/' ~ sql_digest(node.unique_id, built) %}
        {% for week in exported_weeks()
            if tags.get('tested-' ~ week) != snapshot
            or described(table).properties.get('lakehouse.sql.' ~ week) != digest %}
            {% set change = 'alter table ' ~ table %}
            {% do run_query(change ~ ' create or replace tag `tested-' ~ week ~ '` as of version ' ~ snapshot) %}
            {% do run_query(change ~ " set tblproperties ('lakehouse.sql." ~ week ~ "' = '" ~ digest ~ "')") %}
        {% endfor %}
    {% endif %}
{% endmacro %}
