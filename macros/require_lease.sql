{#
    Runs before and after every command that writes: nothing is built while another run has the lease `weekly` of the
    lake (python_common/locks/lease.py), and a build that has outlived its lease tags nothing. LAKEHOUSE_LEASE is the number of
    that lease; a command that a person runs has none, and maintenance that starts after it does not stop it.

    In between no statement asks: each commit is compared with the table that it was planned from.
#}
{% macro require_lease(at_end=false) %}
    {% if not execute %}{% do return('') %}{% endif %}
    {% set own_number = env_var('LAKEHOUSE_LEASE', '') %}
    {# at the end it may be there: dbt lists tables once #}
    {% set has_leases = adapter.get_relation(none, 'ops', 'leases')
        or (at_end and run_query("show tables in ops like 'leases'").rows) %}
    {% if not has_leases %}{% do return('') %}{% endif %}
    {% for lease in run_query(
        "select *, holder is not null and expires_at > current_timestamp() as is_live from ops.leases"
        ~ " where name = 'weekly'"
    ).rows %}
        {% set stops = lease.is_live and not (at_end and lease.get('command') == 'ingest maintain') %}
        {% if own_number and lease.get('number') | string != own_number or not own_number and stops %}
            {% do exceptions.raise_compiler_error(
                ('The lake is at work for ' ~ lease.holder if lease.holder else 'The lake was at work for another run')
                ~ ' (' ~ lease.get('command') ~ ', since ' ~ lease.get('since')
                ~ '). Run it again when that has ended; if it was killed, its lease ends at ' ~ lease.expires_at ~ '.'
            ) %}
        {% endif %}
    {% endfor %}
{% endmacro %}
