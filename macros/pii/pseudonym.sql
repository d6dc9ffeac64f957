{#
    A pseudonym is HMAC-SHA256(key, '<domain>|<value>') as 64 hex digits; models reach it through masked() alone, which
    normalises the value. The domain is the class, after the name of the source if that numbers its persons itself:
    customer 42 of two systems is two persons and has two pseudonyms. Key versions from before release 0.6 use the class
    alone. NULL stays NULL.

    The key is never in SQL: its two pads come from a table over the 0600 key file (macros/pii/check_pii_key.sql), read
    by scalar subqueries, so that two keys fail and none gives NULL. Only the check of a new key reads other `pads`.

    The version of a mask is a hash of the text rendered here, white space included: a change masks everything again.
#}
{% macro pseudonym(value, class, source='', pads='spark_catalog.default.pii_pads') -%}
    sha2(
        concat(
            {{ pii_pad('outer', pads) }},
            unhex(sha2(
                concat(
                    {{ pii_pad('inner', pads) }},
                    encode(
                        concat(
                            {%- if source %}
                            {{ pii_source(source, pads) }},
                            {%- endif %}
                            '{{ class }}|', cast({{ value }} as string)
                        ),
                        'UTF-8'
                    )
                ),
                256
            ))
        ),
        256
    )
{%- endmacro %}


{# The version of the key that made the pseudonyms of this row. #}
{% macro pii_key_version(pads='spark_catalog.default.pii_pads') -%}
    (select split_part(pads.value, ':', 1) from {{ pads }} as pads)
{%- endmacro %}


{# The source in front of the class, if the key's version uses sources: its line states it. #}
{% macro pii_source(source, pads) -%}
    (
        select if(split_part(pads.value, ':', 3) = 'source', '{{ source }}.', '')
        from {{ pads }} as pads
    )
{%- endmacro %}


{# One of the two pads of the HMAC, from the table of the key file. #}
{% macro pii_pad(which, pads) -%}
    {%- set start = {'inner': 1, 'outer': 129}[which] -%}
    (
        select unhex(substr(split_part(pads.value, ':', 2), {{ start }}, 128))
        from {{ pads }} as pads
    )
{%- endmacro %}
