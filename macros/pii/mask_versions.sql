{#
    The version of a mask is a hash of its SQL. An incremental table records those of the classes behind it in its
    property lakehouse.masks: a MERGE into a table of other versions would mix two forms of a mask.
#}


{# The version of each PII class that has masks. #}
{% macro mask_versions() %}
    {% set versions = {} %}
    {% for class, masks in pii_masks().items() if masks and class != 'none' %}
        {% set rendered = [] %}
        {% for mask in masks %}{% do rendered.append(mask_as('value', class, mask, 'source')) %}{% endfor %}
        {% do versions.update({class: class ~ '=' ~ local_md5(rendered | join('\n'))[:16]}) %}
    {% endfor %}
    {% do return(versions) %}
{% endmacro %}


{# The versions of the classes of staging columns that a model reads through schema masked, as class=version. #}
{% macro masks_behind(unique_id) %}
    {% set versions, used_versions = mask_versions(), [] %}
    {% for masked_id in lineage_of(unique_id) if graph.nodes.get(masked_id, {}).get('schema') == 'masked' %}
        {% for node_id in lineage_of(masked_id) if graph.nodes.get(node_id, {}).get('schema') == 'staging' %}
            {% for column in graph.nodes[node_id].columns.values() if column.config.meta.pii in versions %}
                {% do used_versions.append(versions[column.config.meta.pii]) %}
            {% endfor %}
        {% endfor %}
    {% endfor %}
    {% do return(used_versions | unique | sort | join(' ')) %}
{% endmacro %}


{# Raise if a mask has changed since an incremental table was built with it. One command must then build all that is
   masked: otherwise a table could be built from one with the former mask. #}
{% macro require_same_masks() %}
    {% set versions = mask_versions().values() | join(' ') %}
    {% if pairs_of('show tblproperties ops.pii_key_versions').get('lakehouse.masks') == versions %}
        {% do return('') %}
    {% endif %}
    {% set stale, unselected = [], [] %}
    {% for node in graph.nodes.values()
        if node.resource_type == 'model' and node.config.materialized in ('incremental', 'table') %}
        {% set masks = masks_behind(node.unique_id) %}
        {% set table = adapter.get_relation(node.database, node.schema, node.alias) if masks %}
        {% if table and node.unique_id not in selected_resources %}{% do unselected.append(table) %}{% endif %}
        {% if table and node.config.materialized == 'incremental' %}
            {% set of_table = table_properties(table).get('lakehouse.masks', '').split(' ') %}
            {% if masks.split(' ') | reject('in', of_table) | list %}{% do stale.append(table | string) %}{% endif %}
        {% endif %}
    {% endfor %}
    {% if stale and (unselected or not flags.FULL_REFRESH) %}
        {% do exceptions.raise_compiler_error(
            'Masks have changed, but ' ~ stale | sort | join(', ') ~ ' was masked by their former SQL.'
            ~ ' Mask all again: `dbt build --full-refresh --select path:models/intermediate/masked+`.'
        ) %}
    {% elif not stale %}
        {% set properties = "('lakehouse.masks' = '" ~ versions ~ "')" %}
        {% do run_query('alter table ops.pii_key_versions set tblproperties ' ~ properties) %}
    {% endif %}
{% endmacro %}
