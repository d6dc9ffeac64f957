{#
    Which batches a run reads. Config follows names the tables whose new batches a model reads: `sources`, all sources
    that it comes from, or a list of models. A model of strategy affected_keys in that list means the tables that it
    follows itself, up to the batches that it has read: a run may have left it out.

    Such a model has a CTE `bounds`, whose SQL is the same in every run: the materialization sets the bounds of the run in
    its session (set_bounds in macros/incremental/watermark.sql), and without them, as in `dbt show`, it spans all
    batches. To Spark they are literals (lakehouse_bound in python_common/spark/classes/LakehouseExtensions.java), which
    replace the scalar subqueries when it plans, so Iceberg prunes files by them.
#}


{# The model whose rows a view shows: the first one that it reads, or that this one reads, that is no view. #}
{% macro stored_behind(unique_id) %}
    {% set node = graph.nodes[unique_id] %}
    {% set before = node.depends_on.nodes | select('in', graph.nodes) | list %}
    {% do return(stored_behind(before[0]) if node.config.materialized == 'view' and before else node) %}
{% endmacro %}


{# The tables that a model follows: the prefix of their columns in `bounds`, the table with their rows, for a source
   is_source, and for a table that another model follows `reader`, the table of that model. #}
{% macro followed_by(node) %}
    {% set followed = [] %}
    {% if node.config.follows == 'sources' %}
        {% for source in graph.sources.values() if source.unique_id in lineage_of(node.unique_id) %}
            {% set table = api.Relation.create(schema=source.schema, identifier=source.identifier) %}
            {% do followed.append({'name': source.identifier, 'table': table, 'is_source': true}) %}
        {% endfor %}
        {% do return(followed) %}
    {% endif %}
    {% for name in node.config.follows or [] %}
        {% set upstream = graph.nodes['model.' ~ node.package_name ~ '.' ~ name] %}
        {% set stored = stored_behind(upstream.unique_id) %}
        {% if stored.config.materialized != 'incremental' %}
            {% do exceptions.raise_compiler_error(
                node.name ~ ' follows ' ~ stored.name ~ ', which keeps no note of what it has read. Follow a model that'
                ~ ' is incremental, or a view of one.'
            ) %}
        {% endif %}
        {% set table = api.Relation.create(schema=stored.schema, identifier=stored.alias) %}
        {% if stored.config.incremental_strategy == 'affected_keys' %}
            {% for before in followed_by(stored) %}{% do followed.append(dict(before, reader=table)) %}{% endfor %}
        {% else %}
            {% do followed.append({'name': upstream.alias, 'table': table}) %}
        {% endif %}
    {% endfor %}
    {% do return(followed) %}
{% endmacro %}


{# The query of CTE `bounds`: of each followed table the batches after one and until one, and of a source the first day
   of new rows. #}
{% macro bounds() -%}
    {%- set columns = [] -%}
    {%- for followed in (followed_by(model) if execute and model.resource_type != 'unit_test' else []) -%}
        {%- do columns.append(bound(followed.name ~ '_after', '0', 'bigint')) -%}
        {%- do columns.append(bound(followed.name ~ '_until', '9223372036854775807', 'bigint')) -%}
        {%- if followed.is_source -%}
            {%- do columns.append(bound(followed.name ~ '_since', '1970-01-01', 'timestamp')) -%}
        {%- endif -%}
    {%- endfor -%}
    {%- do columns.append(bound('is_rebuild', 'true', 'boolean')) -%}
    select
        {{ columns | join(',\n        ') }}
{%- endmacro %}


{% macro bound(name, default, type) -%}
    cast(lakehouse_bound('{{ model.name if execute else 'model' }}.{{ name }}', '{{ default }}') as {{ type }}) as {{ name }}
{%- endmacro %}


{# The predicate that a row of a followed table is in a batch that the model has not read. #}
{% macro changed_in(relation) -%}
    {%- if execute and model.resource_type == 'unit_test' %}{{ return('true') }}{% endif -%}
    ingest_batch > (select bounds.{{ relation.identifier }}_after from bounds)
        and ingest_batch <= (select bounds.{{ relation.identifier }}_until from bounds)
{%- endmacro %}


{# The predicate that a row of a model's one source is in a batch that it has not read. The day prunes manifests. #}
{% macro in_new_batches() -%}
    {%- if execute and model.resource_type == 'unit_test' %}{{ return('true') }}{% endif -%}
    {%- set source = (followed_by(model) | first).table if execute else {'identifier': 'source'} -%}
    {{ changed_in(source) }}
        and ingested_at >= (select bounds.{{ source.identifier }}_since from bounds)
{%- endmacro %}


{# The predicate that limits a CTE to the keys in CTE `affected`; true where the table is rebuilt. #}
{% macro in_affected(column, key=none) -%}
    {%- if execute and model.resource_type == 'unit_test' %}{{ return('true') }}{% endif -%}
    ({{ column }} in (select affected.{{ key or column }} from affected) or (select bounds.is_rebuild from bounds))
{%- endmacro %}
