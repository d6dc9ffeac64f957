{#
    The version of a mask is a hash of its SQL. An incremental table notes those
    of the classes behind it in its property lakehouse.masks, and merging into a
    table of other versions would mix two forms of a mask.
#}


{# Of each PII class that has masks a hash of their SQL. #}
{% macro mask_versions() %}
    {% set versions = {} %}
    {% for class, masks in pii_masks().items() if masks and class != 'none' %}
        {% set rendered = [] %}
        {% for mask in masks %}{% do rendered.append(mask_as('value', class, mask, 'source')) %}{% endfor %}
        {% do versions.update({class: local_md5(rendered | join('\n'))[:16]}) %}
    {% endfor %}
    {% do return(versions) %}
{% endmacro %}


{# The classes of the staging columns that a model reads through schema masked, with the versions of their masks. #}
{% macro masks_behind(unique_id) %}
    {% set versions, found = mask_versions(), [] %}
    {% for masked_id in lineage_of(unique_id) if graph.nodes.get(masked_id, {}).get('schema') == 'masked' %}
        {% for node_id in lineage_of(masked_id) if graph.nodes.get(node_id, {}).get('schema') == 'staging' %}
            {% for column in graph.nodes[node_id].columns.values() if column.config.meta.pii in versions %}
                {% do found.append(column.config.meta.pii ~ '=' ~ versions[column.config.meta.pii]) %}
            {% endfor %}
        {% endfor %}
    {% endfor %}
    {% do return(found | unique | sort | join(' ')) %}
{% endmacro %}


{# Stop if a mask has changed since an incremental table was built with it. All that is masked must then be built
   in one command, since a table could otherwise be built from one that has the former mask. #}
{% macro require_same_masks() %}
    {% set versions = [] %}
    {% for class, version in mask_versions().items() %}{% do versions.append(class ~ '=' ~ version) %}{% endfor %}
    {% set noted = pairs_of('show tblproperties ops.pii_key_versions').get('lakehouse.masks') %}
    {% if noted == versions | join(' ') %}{% do return('') %}{% endif %}
    {% set stale, left_out = [], [] %}
    {% for node in graph.nodes.values()
        if node.resource_type == 'model' and node.config.materialized in ('incremental', 'table') %}
        {% set masks = masks_behind(node.unique_id) %}
        {% set table = adapter.get_relation(node.database, node.schema, node.alias) if masks %}
        {% if table and node.unique_id not in selected_resources %}{% do left_out.append(table | string) %}{% endif %}
        {% if table and node.config.materialized == 'incremental' %}
            {% set of_table = table_properties(table).get('lakehouse.masks', '').split(' ') %}
            {% if masks.split(' ') | reject('in', of_table) | list %}{% do stale.append(table | string) %}{% endif %}
        {% endif %}
    {% endfor %}
    {% if stale and (left_out or not flags.FULL_REFRESH) %}
        {% do exceptions.raise_compiler_error(
            'Masks have changed, but ' ~ stale | sort | join(', ') ~ ' was masked by their former SQL.'
            ~ ' Mask all again: `dbt build --full-refresh --select path:models/intermediate/masked+`.'
        ) %}
    {% endif %}
    {% if not stale %}
        {% do run_query(
            "alter table ops.pii_key_versions set tblproperties ('lakehouse.masks' = '" ~ versions | join(' ') ~ "')"
        ) %}
    {% endif %}
{% endmacro %}
