{#
    incremental_strategy='earliest' or 'latest': the model reads new rows of
    one source, reduced to one row per unique_key by earliest_of or latest_of.
    A run puts them into the table by one MERGE, atomic: a new key is inserted,
    a known key replaced only by a row that stands before ('earliest') or after
    ('latest') its own, by order_by. So reading a batch again changes nothing.
#}


{# The rank of a row among those of its key: 1 for the one that stays. #}
{% macro earliest_of(key, order_by) -%}
    row_number() over (partition by {{ key }} order by {{ order_by | join(', ') }})
{%- endmacro %}


{% macro latest_of(key, order_by) -%}
    row_number() over (partition by {{ key }} order by {{ order_by | join(' desc, ') }} desc)
{%- endmacro %}


{% macro merge_by_order(target, sql, strategy) %}
    {% set key, order_by = config.require('unique_key'), config.require('order_by') %}
    {% set comparison = {'earliest': '<', 'latest': '>'}[strategy] %}
    {% set slice = make_temp_relation(target, '__slice') %}
    {% call statement('slice') %}
        {{ create_table_as(true, slice, sql) }}
    {% endcall %}
    {% call statement('main') %}
        merge into {{ target }} as kept
        using {{ slice }} as slice
        on kept.{{ key }} = slice.{{ key }}
        when matched
            and struct(slice.{{ order_by | join(', slice.') }}) {{ comparison }} struct(kept.{{ order_by | join(', kept.') }})
            then update set *
        when not matched then insert *
    {% endcall %}
{% endmacro %}
