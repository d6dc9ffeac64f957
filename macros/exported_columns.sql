{# The columns of a dataset's mart that its export model publishes, as both ymls list them; all of them in a unit test,
   which has no graph. #}
{% macro exported_columns(dataset) -%}
    {%- if model.resource_type == 'unit_test' -%}
        *
    {%- elif execute -%}
        {%- set of_mart, exported = [], [] -%}
        {%- for node in graph.nodes.values() if node.name == 'exp_weekly__' ~ dataset -%}
            {%- do exported.extend(node.columns) -%}
            {%- for unique_id in node.depends_on.nodes -%}
                {%- do of_mart.extend(graph.nodes[unique_id].columns) -%}
            {%- endfor -%}
        {%- endfor -%}
        {{ exported | select('in', of_mart) | sort | join(', ') }}
    {%- endif -%}
{%- endmacro %}


{# What made the masked values of a week: the key's version and a hash of the masks behind the mart. A change of either
   is no late data. A unit test has no graph. #}
{% macro masked_with(mart, key_version) %}
    {%- set masks = masks_behind('model.' ~ model.package_name ~ '.' ~ mart)
        if execute and model.resource_type != 'unit_test' -%}
    nullif(concat_ws('-', cast(max({{ key_version or 'null' }}) as string){{ ", '" ~ local_md5(masks)[:8] ~ "'" if masks }}), '')
{%- endmacro %}
