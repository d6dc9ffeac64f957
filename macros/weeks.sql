{#
    The week rule: ISO 8601 weeks, closed-open [Monday 00:00, next Monday 00:00) UTC, on event time, labelled 2026-W53.
    conf/ pins the session time zone to UTC. python_common/weeks.py is the same rule in Python.
#}

{# The label of the week of a moment, from the ISO year and the ISO week: Spark's date_format has no week letters. #}
{% macro iso_week(moment) -%}
    concat(
        lpad(extract(yearofweek from {{ moment }}), 4, '0'),
        '-W',
        lpad(weekofyear({{ moment }}), 2, '0')
    )
{%- endmacro %}


{# The first day of the week of a moment, as a date. #}
{% macro week_start(moment) -%}
    trunc({{ moment }}, 'week')
{%- endmacro %}


{# The labels of the exported weeks, in their order: those of the job (python_dbt/run.py), else var `weeks`, several
   with commas between them, else var `week`, else the last week that was complete when the run started.
   Asked for while dbt parses, the variable would make it parse again for other weeks. #}
{% macro exported_weeks() %}
    {% set of_job = env_var('LAKEHOUSE_WEEKS', '') if execute else '' %}
    {% set named = of_job or var('weeks', '') or var('week', '') or last_complete_week() %}
    {% set labels = (named | string).split(',') | map('trim') | list %}
    {% for label in labels %}{% do monday(label) %}{% endfor %}
    {% do return(labels | unique | sort) %}
{% endmacro %}


{# The label of the last exported week, for a question about one. #}
{% macro last_exported_week() %}
    {% do return(exported_weeks() | last) %}
{% endmacro %}


{# The label of the last week that was over when the run started. #}
{% macro last_complete_week() %}
    {% do return((run_started_at - modules.datetime.timedelta(days=7)).strftime('%G-W%V')) %}
{% endmacro %}


{# The predicate that a label is that of an exported week. #}
{% macro in_exported_weeks(label) -%}
    {{ in_partitions(label, with_stored_partitions(exported_weeks())) }}
{%- endmacro %}


{# The first day of a labelled week, as a date; a compilation error when there is no such week. #}
{% macro monday(label) %}
    {% if not modules.re.fullmatch('[0-9]{4}-W[0-9]{2}', label | string) %}
        {% do exceptions.raise_compiler_error(
            "var week: '" ~ label ~ "' is not a week. Write it as year and ISO week, for instance 2026-W47."
        ) %}
    {% endif %}
    {% set year, week = label[:4] | int, label[6:] | int %}
    {% set weeks_in_year = modules.datetime.date(year, 12, 28).isocalendar()[1] %}
    {% if week < 1 or week > weeks_in_year %}
        {% do exceptions.raise_compiler_error(
            'var week: ' ~ label ~ ' does not exist. ' ~ year ~ ' has ISO weeks W01 to W' ~ weeks_in_year ~ '.'
        ) %}
    {% endif %}
    {% do return(modules.datetime.date.fromisocalendar(year, week, 1)) %}
{% endmacro %}


{# Whether an event time can be right: from 2000 on, of a year that a label can have, and at most an hour ahead of its
   record's timestamp. This does not depend on when the record lands. #}
{% macro is_event_time_valid(moment, recorded_at='kafka_timestamp') -%}
    coalesce(
        {{ moment }} >= timestamp '2000-01-01 00:00:00'
        and year({{ moment }}) < 9999
        and {{ moment }} <= try_add({{ recorded_at }}, interval 1 hour),
        false
    )
{%- endmacro %}


{# The label of the week of an event; NULL without a valid time: such an event stays, but belongs to no week. #}
{% macro event_week(moment, is_valid='is_event_time_valid') -%}
    case when {{ is_valid }} then {{ iso_week(moment) }} end
{%- endmacro %}


{# The moment by which a week counts what its files exclude: the event's if it is valid, else that of the
   record of `row`, else when that landed. #}
{% macro reporting_at(moment, is_valid, row) -%}
    case
        when {{ is_valid }} then {{ moment }}
        when {{ is_event_time_valid(row ~ '.kafka_timestamp', row ~ '.ingested_at') }} then {{ row }}.kafka_timestamp
        else {{ row }}.ingested_at
    end
{%- endmacro %}


{# The instants (UTC) of figures as of a moment: var `as_of`, else the ends of the exported weeks. #}
{% macro as_of_instants() %}
    {% set moment = var('as_of') | string %}
    {% if moment %}
        {% if not modules.re.fullmatch('[0-9]{4}-[0-9]{2}-[0-9]{2}([ T][0-9]{2}:[0-9]{2}:[0-9]{2})?', moment) %}
            {% do exceptions.raise_compiler_error(
                "var as_of: '" ~ moment ~ "' is not an instant. Write it in UTC, for instance 2026-11-16 or 2026-11-16 08:30:00."
            ) %}
        {% endif %}
        {% do return([moment ~ ' 00:00:00' if moment | length == 10 else moment | replace('T', ' ')]) %}
    {% endif %}
    {% set instants = [] %}
    {% for label in exported_weeks() %}
        {% do instants.append((monday(label) + modules.datetime.timedelta(days=7)) ~ ' 00:00:00') %}
    {% endfor %}
    {% do return(instants) %}
{% endmacro %}
