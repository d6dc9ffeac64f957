{#
    incremental_strategy='named_parts': the table is partitioned by one column,
    and a run puts the parts that it names in the place of the old ones, in one
    statement. All other parts stay as they are, so building an old one again
    takes nothing away from what readers see.

    Config: partition_by, the column, and parts, the macro that lists the parts
    of a run as texts, for instance exported_weeks.
#}


{# The predicate that a row belongs to one of some parts. #}
{% macro in_parts(column, parts) -%}
    {{ column }} in ('{{ parts | join("', '") }}')
{%- endmacro %}


{# The parts of a run of a model, whose tests look at no others. #}
{% macro named_parts(node) %}
    {% do return(context[node.config.parts]()) %}
{% endmacro %}


{# The parts that a run builds: on a full refresh those that the table has, too,
   so that readers lose none. #}
{% macro with_parts_of_table(parts) %}
    {% if execute and config.get('incremental_strategy') == 'named_parts' and should_full_refresh() %}
        {% set parts = (parts + stored_parts()) | unique | sort %}
    {% endif %}
    {% do return(parts) %}
{% endmacro %}
