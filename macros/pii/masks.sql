{#
    The masking rules. All of them render without dbt's context: `lakehouse check pii` compares compiled SQL with them.
#}

{# Each PII class and the masks it may leave the restricted layers by. No mask: it is dropped. #}
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
        'unclassified': [],
    }) }}
{%- endmacro %}


{# The types of the columns that a class's masks take: text and integers, if it is not here. #}
{% macro pii_types() -%}
    {{ return({'birth': ['string', 'date', 'timestamp', 'timestamp_ntz'], 'registration': ['int', 'bigint']}) }}
{%- endmacro %}


{# What the name of a column behind a mask ends in, after `_`, if it is not the mask's name. The proof checks it. #}
{% macro mask_suffixes() -%}
    {{ return({'initials': 'masked', 'postal_area': 'area'}) }}
{%- endmacro %}


{# The masks that leave no part of a personal value: a part may single out a person with other columns. #}
{% macro masks_without_parts() -%}
    {{ return(['as_is', 'pseudonym']) }}
{%- endmacro %}


{# A value of a class, from a dbt source, through one mask. NULL stays NULL, and a blank text becomes NULL: it
   identifies no person, and must not make all who lack a value look like one person. #}
{% macro mask_as(value, class, mask, source='', pads='spark_catalog.default.pii_pads', rule=none) -%}
    {%- set value = normalised(value, class, rule) -%}
    {%- if mask == 'as_is' -%}
        {{ value }}
    {%- elif mask == 'pseudonym' -%}
        {# each system numbers its persons; an e-mail or a card is the same everywhere #}
        {{ pseudonym(value, class, source if class in ['user', 'customer'] else '', pads) }}
    {%- elif mask == 'last_four' -%}
        {# a number that is too short to be a card's would be visible in full #}
        nullif(regexp_extract({{ value }}, '^[0-9]{8,15}([0-9]{4})$', 1), '')
    {%- elif mask == 'initials' -%}
        {# three stars whatever the length; the stars alone of one or two characters, and where the first character is
           a whole family name #}
        regexp_replace({{ value }}, '([^ \\p{IsHan}\\p{IsHangul}\\p{IsHiragana}\\p{IsKatakana}])[^ ]{2,}|[^ ]+', '$1***')
    {%- elif mask == 'postal_area' -%}
        {# the first two characters, of codes that have at least two more #}
        nullif(regexp_extract({{ value }}, '^(..)..+$', 1), '')
    {%- elif mask == 'year' -%}
        year({{ value }})
    {%- elif mask == 'month' -%}
        cast(date_trunc('month', {{ value }}) as date)
    {%- endif -%}
{%- endmacro %}


{# The one spelling of a value, so that one person has one mask. Every type compiles, and what a class does not take
   becomes NULL, so that a wrong class stops `lakehouse check pii` alone. `rule` is one of text_rules(). #}
{% macro normalised(value, class, rule=none) -%}
    {%- if class == 'none' -%}
        {{ value }}
    {%- elif class == 'birth' -%}
        {# a number counts days or is a year: the year of its text would show all of it #}
        try_cast(
            if(typeof({{ value }}) in ('string', 'date', 'timestamp', 'timestamp_ntz'), cast({{ value }} as string), null)
            as date
        )
    {%- elif class == 'registration' -%}
        {# milliseconds since 1970 #}
        try_cast(try_cast(cast({{ value }} as string) as bigint) / 1000 as timestamp)
    {%- elif class == 'card_number' -%}
        nullif(regexp_replace(cast({{ value }} as string), '[^0-9]', ''), '')
    {%- elif class == 'email' -%}
        nullif(lower({{ trimmed(value, rule) }}), '')
    {%- elif class == 'postal_code' -%}
        nullif(upper({{ trimmed(value, rule) }}), '')
    {%- else -%}
        {{ clean_text(value, rule) }}
    {%- endif -%}
{%- endmacro %}


{# A value as text without white space around it, NULL if nothing is left: staging's text, and what masks begin with. #}
{% macro clean_text(value, rule=none) -%}
    nullif({{ trimmed(value, rule) }}, '')
{%- endmacro %}


{# The rules by which releases trimmed text, the current one first: published files hold pseudonyms by each. #}
{% macro text_rules() -%}
    {{ return(['unicode', 'ascii']) }}
{%- endmacro %}


{# A value as text in one spelling, as python_common/text.py has it too: each white space beyond ASCII is a blank,
   invisible characters go, and so does white space around the text. Joiners have a meaning inside of words. #}
{% macro trimmed(value, rule=none) -%}
    {%- if rule == 'ascii' -%}
        regexp_replace(cast({{ value }} as string), '^\\s+|\\s+$', '')
    {%- else -%}
        regexp_replace(
            translate(
                cast({{ value }} as string),
                '\u001C\u001D\u001E\u001F\u0085\u00A0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008'
                || '\u2009\u200A\u2028\u2029\u202F\u205F\u3000\u00AD\u061C\u180E\u200B\u200E\u200F\u202A\u202B\u202C'
                || '\u202D\u202E\u2060\u2061\u2062\u2063\u2064\u2065\u2066\u2067\u2068\u2069\uFEFF',
                repeat(' ', 23)
            ),
            '^[\\s\u200C\u200D]+|[\\s\u200C\u200D]+$', ''
        )
    {%- endif -%}
{%- endmacro %}
