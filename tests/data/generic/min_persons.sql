{# No combination of the quasi-identifiers has fewer persons than at_least in an exported week
   (k-anonymity). By default these are the columns with config.meta.quasi and those whose mask keeps a
   part of the value, and persons are the columns with config.meta.subjects: of several the one with
   the fewest values counts. A row without a person singles out none. #}
{% test min_persons(model, at_least, columns=none, persons=none) %}
    {%- set tested = graph.nodes.get(context['model'].attached_node) if execute %}
    {%- set quasi, named = columns or [], persons or [] %}
    {%- for name, column in (tested.columns if tested else {}).items() %}
        {%- set mask = column.config.meta.mask or 'as_is' %}
        {%- if not columns and (column.config.meta.quasi or mask not in masks_without_parts()) %}
            {%- do quasi.append(name) %}
        {%- endif %}
        {%- if not persons and column.config.meta.subjects %}{% do named.append(name) %}{% endif %}
    {%- endfor %}
    {%- if execute and not (quasi and named) %}
        {%- do exceptions.raise_compiler_error(
            context['model'].attached_node ~ ': min_persons finds no quasi-identifier or no person.'
            ~ ' Declare config.meta.quasi and config.meta.subjects of its columns, or remove the test.'
        ) %}
    {%- endif %}
    {%- set week, counts = tested.config.partition_by if tested, [] %}
    {%- set keys = quasi + ([week] if week else []) %}
    {%- for name in named %}
        {%- do counts.append('nullif(count(distinct ' ~ name ~ '), 0)') %}
    {%- endfor %}
    select
        {{ keys | join(', ') }},
        array_min(array({{ counts | join(', ') }})) as persons
    from {{ model }}
    group by {{ keys | join(', ') }}
    having array_min(array({{ counts | join(', ') }})) < {{ at_least }}
{% endtest %}
