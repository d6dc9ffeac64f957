{#
    What an incremental model says in its SQL of what a run reads. The
    materialization fills in bounds in the place of these words when the model
    runs (with_bounds in macros/incremental/watermark.sql). Until then they are
    `true`: compiled SQL reads everything, and takes no warehouse to compile.
#}


{# The predicate that limits a source to the batches that the model has not
   read: filled in when it runs. #}
{% macro in_new_batches(system, table) %}
    {%- if not execute or model.resource_type == 'unit_test' -%}
        true
    {%- else -%}
        {%- for node in graph.sources.values() if (node.source_name, node.name) == (system, table) -%}
            {%- set bronze = api.Relation.create(schema=node.schema, identifier=node.identifier) -%}
            {{ news_marker(bronze) }}
        and {{ day_marker(bronze) }}
        {%- endfor -%}
    {%- endif -%}
{% endmacro %}


{# The predicate that a row of a deduplicated table is news to this model. A model
   that takes the rows from a third table reads `through` that one: until where
   it has read itself, for a run may have left it out. #}
{% macro changed_in(relation, through=none) %}
    {{- news_marker(relation, through) -}}
{% endmacro %}


{# The predicate that limits a CTE to the keys in another, which has them in a column
   of the same name; true where the table is built as a whole. #}
{% macro in_affected(column, affected='affected') -%}
    {%- if execute and model.resource_type == 'unit_test' -%}{{ return('true') }}{%- endif -%}
    ({{ column }} in (select {{ affected }}.{{ column }} from {{ affected }}) or {{ rebuilt_marker() }})
{%- endmacro %}


{% macro rebuilt_marker() -%}
    false /* true where the table is built as a whole */
{%- endmacro %}


{% macro news_marker(relation, through=none) -%}
    true /* news of {{ relation.schema }}.{{ relation.identifier }}
    {{- ', through ' ~ through.schema ~ '.' ~ through.identifier if through }} */
{%- endmacro %}


{# The predicate that a row of a source landed since the day of its first news:
   it prunes manifests. #}
{% macro day_marker(relation) -%}
    true /* landed since the first news of {{ relation.schema }}.{{ relation.identifier }} */
{%- endmacro %}
