{#
    The one way out of the restricted layers: a column of a staging model through a mask of its PII class. The class is
    declared once, in the column's config.meta.pii. A column without a class, or of a class that does not have the mask,
    does not compile.

    masked('stg_shop__customers', 'email', as='pseudonym')           the column `email`
    masked(..., 'email', value='versions.email', as='pseudonym')     the same from an expression

    A unit test has no graph to look the class up in: the value replaces its mask there. tests/models/test_masks.py
    tests the masks.
#}
{% macro masked(staging_model, column, value=none, as=none) -%}
    {%- if not execute or model.resource_type == 'unit_test' %}{{ return(value or column) }}{% endif -%}
    {%- set node = graph.nodes.values()
        | selectattr('resource_type', 'equalto', 'model')
        | selectattr('name', 'equalto', staging_model)
        | first -%}
    {%- if not node -%}
        {%- do exceptions.raise_compiler_error(
            'masked(): unknown staging model ' ~ staging_model ~ '. Name the model that declares the class of '
            ~ column ~ '.'
        ) -%}
    {%- endif -%}
    {%- set class = node.columns.get(column, {}).get('config', {}).get('meta', {}).get('pii') -%}
    {%- if not class -%}
        {%- do exceptions.raise_compiler_error(
            node.name ~ '.' ~ column ~ ' has no PII class. Declare config.meta.pii in ' ~ node.name
            ~ '.yml: one of ' ~ pii_masks() | join(', ') ~ '.'
        ) -%}
    {%- endif -%}
    {{ mask(value or column, class, as, source=node.depends_on.nodes[0].split('.')[2]) }}
{%- endmacro %}


{# A value through a mask of its class. #}
{% macro mask(value, class, as, source='') -%}
    {%- set masks = pii_masks().get(class, []) -%}
    {%- if as not in masks -%}
        {%- set named = 'the masks ' ~ masks | join(', ') ~ ': set `as` to one of them' -%}
        {%- do exceptions.raise_compiler_error(
            'masked(' ~ value ~ ') as ' ~ as ~ ': PII class ' ~ class ~ ' has '
            ~ (named if masks else 'no mask: its columns must be dropped, leave them out') ~ '.'
        ) -%}
    {%- endif -%}
    {{ mask_as(value, class, as, source) }}
{%- endmacro %}
