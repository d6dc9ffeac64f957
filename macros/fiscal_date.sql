{# The date whose calendar year and month are the fiscal year and period of a date. A fiscal year begins with month var
   fiscal_year_start_month and is named after the calendar year in which it ends. A compilation error unless the var is
   a month. #}
{% macro fiscal_date(date) -%}
    {%- set start = var('fiscal_year_start_month') | string -%}
    {%- if not modules.re.fullmatch('[1-9]|1[0-2]', start) -%}
        {%- do exceptions.raise_compiler_error(
            "var fiscal_year_start_month: '" ~ start ~ "' is not a month. Give its number, 1 to 12."
        ) -%}
    {%- endif -%}
    add_months({{ date }}, {{ (13 - start | int) % 12 }})
{%- endmacro %}
