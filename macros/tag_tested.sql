{#
    Runs at the end of every command that writes: what may be exported is what
    this run has built and tested. Of each export model whose tests have all
    passed in this run, the snapshot that the run wrote is tagged
    tested-<week>; no tag moves if one of them failed or was left out, if a test
    of what the model comes from failed, or if somebody else has written to the
    table meanwhile.

    Compaction keeps the rows: its snapshots are passed over.
#}
{% macro tag_tested(results) %}
    {% if not execute %}{% do return('') %}{% endif %}
    {% set passed, failed = [], [] %}
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
        {% if not faults and not untested %}{% do tag_snapshot(result.node) %}{% endif %}
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


{# Tag the snapshot that was tested of a model's table. #}
{% macro tag_snapshot(node) %}
    {% set table = api.Relation.create(schema=node.schema, identifier=node.alias) %}
    {% set newest = run_query(
        "select snapshot_id, summary['lakehouse.invocation-id'] from " ~ table ~ '.snapshots'
        ~ ' where snapshot_id in (select snapshot_id from ' ~ table ~ '.history where is_current_ancestor)'
        ~ " and operation <> 'replace' order by committed_at desc limit 1"
    ).rows %}
    {% if newest and newest[0][1] == invocation_id %}
        {% for week in exported_weeks() %}
            {% do run_query(
                'alter table ' ~ table ~ ' create or replace tag `tested-' ~ week ~ '` as of version ' ~ newest[0][0]
            ) %}
        {% endfor %}
    {% endif %}
{% endmacro %}
