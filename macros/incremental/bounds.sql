{#
    Which batches a run reads. Config follows names the tables whose new batches a model reads: `sources`, all sources
    that it comes from, or a list of models. A model of strategy affected_keys in that list means the tables that it
    follows itself, up to the batches that it has read: a run may have left it out.

    Such a model reads what is changed_in() a table, or in_new_batches(), whose SQL is the same in every run: the
    materialization sets the bounds of the run in its session (set_bounds in macros/incremental/watermark.sql), and
    without them, as in `dbt show`, all batches are read. To Spark they are literals (lakehouse_bound in
    python_common/spark/classes/LakehouseExtensions.java), so Iceberg prunes files by them.
#}


{# The model whose rows a view shows: the first one that it reads, or that this one reads, that is no view. #}
{% macro stored_behind(unique_id) %}
    {% set node = graph.nodes[unique_id] %}
    {% set before = node.depends_on.nodes | select('in', graph.nodes) | list %}
    {% do return(stored_behind(before[0]) if node.config.materialized == 'view' and before else node) %}
{% endmacro %}


{# The tables that a model follows: the prefix of their bounds, the table with their rows, for a source
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


{% macro bound(name, default, type) -%}
    cast(lakehouse_bound('{{ name }}', '{{ default }}') as {{ type }})
{%- endmacro %}


{# The predicate that a row of a followed table is in a batch that the model has not read. #}
{% macro changed_in(relation) -%}
    {%- if execute and model.resource_type == 'unit_test' %}{{ return('true') }}{% endif -%}
    {%- if execute and relation.identifier not in followed_by(model) | map(attribute='name') | list -%}
        {%- do exceptions.raise_compiler_error(
            model.name ~ ' reads what changed in ' ~ relation.identifier ~ '. Name that in its config follows.'
        ) -%}
    {%- endif -%}
    ingest_batch > {{ bound(relation.identifier ~ '_after', '0', 'bigint') }}
        and ingest_batch <= {{ bound(relation.identifier ~ '_until', '9223372036854775807', 'bigint') }}
{%- endmacro %}


{# The predicate that a row of a model's one source is in a batch that it has not read. The day prunes manifests. #}
{% macro in_new_batches() -%}
    {%- if execute and model.resource_type == 'unit_test' %}{{ return('true') }}{% endif -%}
    {%- set source = (followed_by(model) | first).table if execute else {'identifier': 'source'} -%}
    {{ changed_in(source) }}
        and ingested_at >= {{ bound(source.identifier ~ '_since', '1970-01-01', 'timestamp') }}
{%- endmacro %}


{# The predicate that limits a CTE to the keys in CTE `affected`; true where the table is rebuilt. Spark expects as many
   keys as the tables have rows that they come from, and would sort each table: a run tells it if they are few. #}
{% macro in_affected(column, key=none) -%}
    {%- if execute and model.resource_type == 'unit_test' %}{{ return('true') }}{% endif -%}
    {%- set few, keys = bound('are_few', 'false', 'boolean'), 'affected.' ~ (key or column) ~ ' from affected' -%}
    (
        ({{ column }} in (select /*+ broadcast(affected) */ {{ keys }}) and {{ few }})
        or ({{ column }} in (select {{ keys }}) and not {{ few }})
        or {{ bound('is_rebuild', 'true', 'boolean') }}
    )
{%- endmacro %}
