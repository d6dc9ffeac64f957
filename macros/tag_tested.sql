{#
    Runs at the end of every command that writes: what may be exported is what
    this run has built and tested. Of each export model whose tests have all
    passed in this run, the snapshot that the run wrote is tagged
    tested-<week>; no tag moves if one of them failed or was left out, if a test
    of what the model comes from failed, or if somebody else has written to the
    table meanwhile.

    Compaction keeps the rows: its snapshots are passed over.

    Where the run has built all models behind the export, the table property
    lakehouse.sql.<week> has the snapshot and the SHA-256 of their compiled SQL:
    `export run --no-build` publishes what is of the SQL that it has proven. The
    summary of the snapshot cannot have it, for the model is written before dbt
    shows the SQL of others.
#}
{% macro tag_tested(results) %}
    {% if not execute %}{% do return('') %}{% endif %}
    {% set passed, failed, compiled = [], [], {} %}
    {% for result in results if result.node.resource_type == 'model' and result.status == 'success' %}
        {% do compiled.update({result.node.unique_id: result.node.compiled_code}) %}
    {% endfor %}
    {% for result in results if result.node.resource_type == 'test' %}
        {% if result.status in ('pass', 'warn') %}
            {% do passed.append(result.node.unique_id) %}
        {# One over several models is skipped because another of them failed. #}
        {% elif result.status != 'skipped' %}
            {% set attached_node = result.node.attached_node %}
            {% do failed.extend([attached_node] if attached_node else result.node.depends_on.nodes) %}
        {% endif %}
    {% endfor %}
    {% for result in results
        if result.node.resource_type == 'model' and result.status == 'success'
        and result.node.config.meta.export %}
        {% set faults = lineage_of(result.node.unique_id) | select('in', failed) | list %}
        {% set untested = [] %}
        {% for test in graph.nodes.values()
            if test.resource_type == 'test' and test.attached_node == result.node.unique_id
            and test.unique_id not in passed %}
            {% do untested.append(test.name) %}
        {% endfor %}
        {% if not faults and not untested %}{% do tag_snapshot(result.node, compiled) %}{% endif %}
    {% endfor %}
{% endmacro %}


{# A node and all that it comes from. The list grows while it is gone through. #}
{% macro lineage_of(unique_id) %}
    {% set found = [unique_id] %}
    {% for node_id in found %}
        {% for upstream in graph.nodes.get(node_id, {}).get('depends_on', {}).get('nodes', []) %}
            {% if upstream not in found %}{% do found.append(upstream) %}{% endif %}
        {% endfor %}
    {% endfor %}
    {% do return(found) %}
{% endmacro %}


{# The SHA-256 of the SQL of a model and all that it comes from; '' if the run has not compiled all of it. #}
{% macro sql_digest(unique_id, compiled) %}
    {% set lines = [] %}
    {% for node_id in lineage_of(unique_id) | sort if node_id.startswith('model.') %}
        {% if node_id not in compiled %}{% do return('') %}{% endif %}
        {# which weeks a run names is no matter of what the SQL lets out #}
        {% set sql = modules.re.sub("'[0-9]{4}-W[0-9]{2}'(, '[0-9]{4}-W[0-9]{2}')*", '', compiled[node_id]) %}
        {% do lines.append(node_id ~ '\n' ~ sql) %}
    {% endfor %}
    {% set text = lines | join('\n') | replace('\\', '\\\\') | replace("'", "\\'") %}
    {% do return(run_query("select sha2('" ~ text ~ "', 256)").rows[0][0]) %}
{% endmacro %}


{# Tag the snapshot that was tested of a model's table. #}
{% macro tag_snapshot(node, compiled) %}
    {% set table = api.Relation.create(schema=node.schema, identifier=node.alias) %}
    {% set newest = run_query(
        "select snapshot_id, summary['lakehouse.invocation-id'] from " ~ table ~ '.snapshots'
        ~ ' where snapshot_id in (select snapshot_id from ' ~ table ~ '.history where is_current_ancestor)'
        ~ " and operation <> 'replace' order by committed_at desc limit 1"
    ).rows %}
    {% if newest and newest[0][1] == invocation_id %}
        {% set digest = sql_digest(node.unique_id, compiled) %}
        {% for week in exported_weeks() %}
            {% do run_query(
                'alter table ' ~ table ~ ' create or replace tag `tested-' ~ week ~ '` as of version ' ~ newest[0][0]
            ) %}
            {% do run_query(
                'alter table ' ~ table ~ " set tblproperties ('lakehouse.sql." ~ week ~ "' = '"
                ~ newest[0][0] ~ '/' ~ digest ~ "')"
            ) %}
        {% endfor %}
    {% endif %}
{% endmacro %}
