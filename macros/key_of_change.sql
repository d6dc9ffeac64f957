{#
    The primary key of a change of a shop table: the row's, or the record's own
    where there is no row (a tombstone). Before the first decodable key has
    landed the bronze table has no kafka_key.
#}
{% macro key_of_change(table, column) -%}
    {%- set landed = adapter.get_columns_in_relation(source('shop', table)) | map(attribute='name') | list -%}
    {{ 'coalesce(' ~ column ~ ', kafka_key.' ~ column ~ ')' if 'kafka_key' in landed else column }}
{%- endmacro %}
