{#
    The columns of what a run writes, by name and type, against the yml if that
    is a contract, and against the table. dbt checks a contract only where it
    creates a table, and says nothing of a column that a MERGE leaves out.

    Config on_schema_change: append_new_columns adds a column that the table
    lacks, by ALTER; rows that are not written again have NULL in it. Without it
    a table with other columns is refused.
#}
{% macro require_columns(sql, table) %}
    {% set built = columns_of(sql) %}
    {% set declared = {} %}
    {% for name, column in model.columns.items() if column.data_type %}
        {% do declared.update({name: column.data_type}) %}
    {% endfor %}
    {% if model.config.contract.enforced %}
        {% set differences = columns_that_differ(built, declared, model.name ~ '.yml') %}
        {% if differences %}
            {% do exceptions.raise_compiler_error(
                this ~ ' does not have the columns it is described with: ' ~ differences | join('; ')
                ~ '. Correct the model or its yml.'
            ) %}
        {% endif %}
    {% endif %}
    {% if not table %}{% do return('') %}{% endif %}

    {% set stored = {} %}
    {% for column in adapter.get_columns_in_relation(table) %}
        {% do stored.update({column.name: column.dtype}) %}
    {% endfor %}
    {% if config.get('on_schema_change') == 'append_new_columns' %}
        {% set added = [] %}
        {% for name, type in built.items() if name not in stored %}
            {% do added.append(name ~ ' ' ~ type) %}
            {% do stored.update({name: type}) %}
        {% endfor %}
        {% if added %}
            {% do run_query('alter table ' ~ table ~ ' add columns (' ~ added | join(', ') ~ ')') %}
        {% endif %}
    {% endif %}
    {% set differences = columns_that_differ(built, stored, 'the table') %}
    {% if differences %}
        {% do exceptions.raise_compiler_error(
            table ~ ' was built with other columns: ' ~ differences | join('; ')
            ~ ('. Run `dbt build --full-refresh --select ' ~ model.name ~ '+`, or, if'
                if model.config.full_refresh is not false else '. It keeps rows that nothing else has: if')
            ~ ' old rows may have NULL in a new column, set on_schema_change: append_new_columns.'
        ) %}
    {% endif %}
{% endmacro %}


{# How the columns of a model differ from others, {name: type}, one text each. #}
{% macro columns_that_differ(built, expected, place) %}
    {% set differences = [] %}
    {% for name, type in built.items() %}
        {% if name not in expected %}
            {% do differences.append(name ~ ' is not in ' ~ place) %}
        {% elif type | lower | replace(' ', '') != expected[name] | lower | replace(' ', '') %}
            {% do differences.append(name ~ ' is ' ~ type ~ ', in ' ~ place ~ ' ' ~ expected[name]) %}
        {% endif %}
    {% endfor %}
    {% for name in expected if name not in built %}
        {% do differences.append(name ~ ' is in ' ~ place ~ ' alone') %}
    {% endfor %}
    {% do return(differences) %}
{% endmacro %}


{# The columns of a query by name, with their types. #}
{% macro columns_of(query) %}
    {% do return(pairs_of('describe query ' ~ query)) %}
{% endmacro %}


{# What a statement returns: its first column to its second. #}
{% macro pairs_of(statement) %}
    {% set pairs = {} %}
    {% for row in run_query(statement).rows %}
        {% do pairs.update({row[0]: row[1]}) %}
    {% endfor %}
    {% do return(pairs) %}
{% endmacro %}
