{#
    Runs before and after every command that writes: nothing is built while
    another run has the lease `weekly` of the lake (lakehouse/lease.py), and a
    build that has outlived the lease it runs under tags nothing. LAKEHOUSE_LEASE
    is that lease's number; a command given by hand runs under none. Maintenance
    that began after it does not come into its way.

    In between no statement asks: each commit is compared with the table that it
    was planned from.
#}
{% macro require_lease(at_end=false) %}
    {% if not execute %}{% do return('') %}{% endif %}
    {% set mine = env_var('LAKEHOUSE_LEASE', '') %}
    {% do run_query('create schema if not exists ops') %}
    {% if not run_query("show tables in ops like 'leases'").rows %}{% do return('') %}{% endif %}
    {% for held in run_query(
        "select *, holder is not null and expires_at > current_timestamp() as is_running from ops.leases"
        ~ " where name = 'weekly'"
    ).rows %}
        {% set is_other = held.is_running and not (at_end and held.get('command') == 'ingest maintain') %}
        {% if mine and held.get('number') | string != mine or not mine and is_other %}
            {% do exceptions.raise_compiler_error(
                ('The lake is at work for ' ~ held.holder if held.holder else 'The lake was at work for another run')
                ~ ' (' ~ held.get('command') ~ ', since ' ~ held.get('since')
                ~ '). Run it again when that has ended; if it was killed, its lease ends at ' ~ held.expires_at ~ '.'
            ) %}
        {% endif %}
    {% endfor %}
{% endmacro %}
