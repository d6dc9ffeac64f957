{#
    Compares the columns of what a run writes, by name and type, with the yml if that is a contract, and with the table.
    dbt checks a contract only where it creates a table, and not at all whether a MERGE leaves a column out.

    Config on_schema_change: append_new_columns adds a column that the table lacks, by ALTER; rows that are not written
    again have NULL in it. Without it a table with other columns is refused.
#}
{% macro require_columns(sql, table) %}
    {% set built, declared, stored = pairs_of('describe query ' ~ sql), {}, {} %}
    {% for name, column in model.columns.items() if column.data_type %}
        {% do declared.update({name: column.data_type}) %}
    {% endfor %}
    {% set differences = differing_columns(built, declared, model.name ~ '.yml') %}
    {% if differences and model.config.contract.enforced %}
        {% do exceptions.raise_compiler_error(
            this ~ ' does not have the columns it is described with: ' ~ differences ~ '. Correct the model or its yml.'
        ) %}
    {% endif %}
    {% if not table %}{% do return('') %}{% endif %}

    {% for name, column in described(table.schema ~ '.' ~ table.identifier).columns.items() %}
        {% do stored.update({name: column.type}) %}
    {% endfor %}
    {% if config.get('on_schema_change') == 'append_new_columns' %}
        {% for name, type in built.items() if name not in stored %}
            {% do run_query('alter table ' ~ table ~ ' add columns (' ~ name ~ ' ' ~ type ~ ')') %}
            {% do stored.update({name: type}) %}
        {% endfor %}
    {% endif %}
    {% set differences = differing_columns(built, stored, 'the table') %}
    {% if differences %}
        {% do exceptions.raise_compiler_error(
            table ~ ' was built with other columns: ' ~ differences
            ~ ('. Run `dbt build --full-refresh --select ' ~ model.name ~ '+`, or, if'
                if model.config.full_refresh is not false else '. Only it has some of its rows: if')
            ~ ' old rows may have NULL in a new column, set on_schema_change: append_new_columns.'
        ) %}
    {% endif %}
{% endmacro %}


{# How the columns of a model differ from those of `other`, both {name: type}; '' if they do not. #}
{% macro differing_columns(built, expected, other) %}
    {% set differences = [] %}
    {% for name, type in built.items() %}
        {% if name not in expected %}
            {% do differences.append(name ~ ' is not in ' ~ other) %}
        {% elif type | lower | replace(' ', '') != expected[name] | lower | replace(' ', '') %}
            {% do differences.append(name ~ ' is ' ~ type ~ ', in ' ~ other ~ ' ' ~ expected[name]) %}
        {% endif %}
    {% endfor %}
    {% for name in expected if name not in built %}
        {% do differences.append(name ~ ' is in ' ~ other ~ ' alone') %}
    {% endfor %}
    {% do return(differences | join('; ')) %}
{% endmacro %}


{# The rows of a statement as a dictionary, from the first column to the second. #}
{% macro pairs_of(statement) %}
    {% set pairs = {} %}
    {% for row in run_query(statement).rows %}
        {% do pairs.update({row[0]: row[1]}) %}
    {% endfor %}
    {% do return(pairs) %}
{% endmacro %}
