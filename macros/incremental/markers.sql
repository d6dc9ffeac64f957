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


{# Where a predicate becomes true if the run builds the table as a whole. #}
{% macro rebuilt_marker() -%}
    false /* true where the table is built as a whole */
{%- endmacro %}


{# Where the bounds of a table that the model reads are filled in. #}
{% macro news_marker(relation, through=none) -%}
    true /* news of {{ relation.schema }}.{{ relation.identifier }}
    {{- ', through ' ~ through.schema ~ '.' ~ through.identifier if through }} */
{%- endmacro %}


{# The predicate that a row of a source landed since the day of its first news:
   it prunes manifests. #}
{% macro day_marker(relation) -%}
    true /* landed since the first news of {{ relation.schema }}.{{ relation.identifier }} */
{%- endmacro %}


{# The tables whose news a compiled model is limited to, as (marker, table, through, whether it is a
   source). The news of a view are those of the table behind it. #}
{% macro marked_in(sql) %}
    {% set found = [] %}
    {% for node in graph.sources.values() %}
        {% set table = api.Relation.create(schema=node.schema, identifier=node.identifier) %}
        {% if news_marker(table) in sql %}{% do found.append((news_marker(table), table, none, true)) %}{% endif %}
    {% endfor %}
    {% set models = [] %}
    {% for unique_id in model.depends_on.nodes if unique_id.startswith('model.') %}
        {% set node, stored = graph.nodes[unique_id], stored_behind(unique_id) %}
        {% do models.append((
            api.Relation.create(schema=node.schema, identifier=node.alias),
            api.Relation.create(schema=stored.schema, identifier=stored.alias),
        )) %}
    {% endfor %}
    {% for relation, table in models %}
        {% for through in [none] + (models | map('first') | list) if news_marker(relation, through) in sql %}
            {% do found.append((news_marker(relation, through), table, through, false)) %}
        {% endfor %}
    {% endfor %}
    {% do return(found) %}
{% endmacro %}
