{#
    The masking rules. All of them render without dbt's context: `lakehouse check pii` compares compiled SQL with them.
#}

{# Each PII class and the masks it may leave the restricted layers by, the default first. No mask: it is dropped. #}
{% macro pii_masks() -%}
    {{ return({
        'none': ['as_is'],
        'user': ['pseudonym'],
        'customer': ['pseudonym'],
        'email': ['pseudonym'],
        'card_number': ['last_four', 'pseudonym'],
        'person_name': ['initials'],
        'postal_code': ['postal_area'],
        'birth': ['year'],
        'registration': ['month'],
        'account': [],
        'card_expiration': [],
        'free_text': [],
        'gender': [],
        'street': [],
    }) }}
{%- endmacro %}


{# The types of the columns that a class's masks take: text and integers, if it is not here. #}
{% macro pii_types() -%}
    {{ return({
        'birth': ['string', 'date', 'timestamp', 'timestamp_ntz'],
        'registration': ['int', 'bigint'],
    }) }}
{%- endmacro %}


{# A value of a class, from a dbt source, through one mask. NULL stays NULL, and a blank text becomes NULL: it
   identifies no person, and must not make all who lack a value look like one person. #}
{% macro mask_as(value, class, mask, source='', pads='spark_catalog.default.pii_pads') -%}
    {%- set value = normalised(value, class) -%}
    {%- if mask == 'as_is' -%}
        {{ value }}
    {%- elif mask == 'pseudonym' -%}
        {# each system numbers its persons; an e-mail or a card is the same everywhere #}
        {{ pseudonym(value, class, source if class in ['user', 'customer'] else '', pads) }}
    {%- elif mask == 'last_four' -%}
        {# a number that is too short to be a card's would be visible in full #}
        nullif(regexp_extract({{ value }}, '^[0-9]{8,15}([0-9]{4})$', 1), '')
    {%- elif mask == 'initials' -%}
        {# three stars whatever the length; a name of one letter would be visible in full #}
        regexp_replace({{ value }}, '([^ ])[^ ]+|[^ ]', '$1***')
    {%- elif mask == 'postal_area' -%}
        {# the first two characters, of codes that have at least two more #}
        nullif(regexp_extract({{ value }}, '^(..)..+$', 1), '')
    {%- elif mask == 'year' -%}
        year({{ value }})
    {%- elif mask == 'month' -%}
        cast(date_trunc('month', {{ value }}) as date)
    {%- endif -%}
{%- endmacro %}


{# The one spelling of a value, so that one person has one mask. #}
{% macro normalised(value, class) -%}
    {%- if class == 'none' -%}
        {{ value }}
    {%- elif class == 'birth' -%}
        try_cast({{ value }} as date)
    {%- elif class == 'registration' -%}
        {# milliseconds since 1970 #}
        try_cast({{ value }} / 1000 as timestamp)
    {%- elif class == 'card_number' -%}
        nullif(regexp_replace(cast({{ value }} as string), '[^0-9]', ''), '')
    {%- elif class == 'email' -%}
        nullif(lower({{ trimmed(value) }}), '')
    {%- elif class == 'postal_code' -%}
        nullif(upper({{ trimmed(value) }}), '')
    {%- else -%}
        {{ clean_text(value) }}
    {%- endif -%}
{%- endmacro %}


{# A value as text without white space around it, NULL if nothing is left: staging's text, and what masks begin with. #}
{% macro clean_text(value) -%}
    nullif({{ trimmed(value) }}, '')
{%- endmacro %}


{# A value as text without white space around it; SQL's trim() removes blanks alone. #}
{% macro trimmed(value) -%}
    regexp_replace(cast({{ value }} as string), '^\\s+|\\s+$', '')
{%- endmacro %}
