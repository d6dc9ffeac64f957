{#
    Compares the columns of what a run writes, by name and type, with the yml if that is a contract, and with the table.
    dbt checks a contract only where it creates a table, and not at all whether a MERGE leaves a column out.

    A table follows its model: before rows are written, its columns get the order that a full refresh gives them. Config
    on_schema_change: append_new_columns adds a column that the table lacks, NULL in rows that are not written again,
    and drops one that the model lacks. A table that cannot be built again, a snapshot or full_refresh: false, keeps it,
    NULL in new rows. Without the config a table with other columns is refused; one with another type or partition
    column always is. A table that is refused is not altered. Returns the SQL with all columns of the table.
#}
{% macro require_columns(sql, table) %}
    {% set built, alter = pairs_of('describe query ' ~ sql), 'alter table ' ~ table %}
    {% set declared = dict(zip(model.columns, model.columns.values() | map(attribute='data_type'))) %}
    {% set is_contract, is_snapshot = model.config.contract.enforced, model.resource_type == 'snapshot' %}
    {% set differences = differing_columns(built, declared, model.name ~ '.yml') if is_contract %}
    {% if differences %}
        {% do exceptions.raise_compiler_error(
            this ~ ' does not have the columns it is described with: ' ~ differences ~ '. Correct the model or its yml.'
        ) %}
    {% endif %}
    {% if not table %}{% do return(sql) %}{% endif %}

    {% set stored = pairs_of('describe query select * from ' ~ table) %}
    {% set added, gone = built | reject('in', stored) | list, stored | reject('in', built) | list %}
    {% set is_lasting = is_snapshot or model.config.full_refresh is false %}
    {% set appends = is_snapshot or config.get('on_schema_change') == 'append_new_columns' %}
    {% set ignored = added + gone if appends and config.get('partition_by') not in added + gone else [] %}
    {% set differences = differing_columns(built, stored, 'the table', ignored) %}
    {% if differences %}
        {% do exceptions.raise_compiler_error(
            table ~ ' was built with other columns: ' ~ differences
            ~ ('. Only it has some of its rows: keep its types' if is_lasting
                else '. Run `dbt build --full-refresh --select ' ~ model.name ~ '+`')
            ~ ('.' if appends
                else ', or, if old rows may have NULL in a new column, set on_schema_change: append_new_columns.')
        ) %}
    {% endif %}

    {% set dropped, kept = ([], gone) if is_lasting else (gone, []) %}
    {% set order, moves, nulls = (declared if is_contract else built) | list + kept, [], ['*'] %}
    {% for name in dropped %}{% do run_query(alter ~ ' drop column ' ~ name) %}{% endfor %}
    {% for name in added %}{% do run_query(alter ~ ' add column ' ~ name ~ ' ' ~ built[name]) %}{% endfor %}
    {% for name in order %}
        {% do moves.append(name ~ (' first' if loop.first else ' after ' ~ loop.previtem)) %}
    {% endfor %}
    {% if stored | reject('in', dropped) | list + added != order %}
        {% do run_query(alter ~ ' alter column ' ~ moves | join(', ')) %}
    {% endif %}
    {% for name in kept %}{% do nulls.append('cast(null as ' ~ stored[name] ~ ') as ' ~ name) %}{% endfor %}
    {% do return('select ' ~ nulls | join(', ') ~ ' from (\n' ~ sql ~ '\n)' if kept else sql) %}
{% endmacro %}


{# How the columns of a model differ from those of `other`, both {name: type}; '' if they do not. #}
{% macro differing_columns(built, expected, other, ignored=[]) %}
    {% set differences = [] %}
    {% for name in (built | list + expected | list) | unique | reject('in', ignored) %}
        {% if name not in expected %}
            {% do differences.append(name ~ ' is not in ' ~ other) %}
        {% elif name not in built %}
            {% do differences.append(name ~ ' is in ' ~ other ~ ' alone') %}
        {% elif built[name] | lower | replace(' ', '') != expected[name] | lower | replace(' ', '') %}
            {% do differences.append(name ~ ' is ' ~ built[name] ~ ', in ' ~ other ~ ' ' ~ expected[name]) %}
        {% endif %}
    {% endfor %}
    {% do return(differences | join('; ')) %}
{% endmacro %}


{# The rows of a statement as a dictionary, from the first column to the second. #}
{% macro pairs_of(statement) %}
    {% set columns = run_query(statement).columns %}
    {% do return(dict(zip(columns[0].values(), columns[1].values()))) %}
{% endmacro %}
