{#
    Figures of groups that name the column of their persons, config
    meta.export.persons, and in meta.export.suppressed the column that is true
    where a group is held back: what a run computes for a week that is published
    already is made such that nobody learns of few persons from two versions of
    it. A group that some version holds back stays held back. Any other has new
    figures only if the number of its persons is at least var
    small_group_threshold away from that of every version; else it keeps those
    of the newest version that has it.

    The published versions are the snapshots that the export tags
    (python_export/publishing/retain.py), of all export roots.
#}
{% macro as_published(sql) %}
    {% set persons = model.config.meta.get('export', {}).get('persons') %}
    {% set suppressed = model.config.meta.get('export', {}).get('suppressed') %}
    {% set threshold = small_group_threshold() if persons else 1 %}
    {% set versions = published_versions() if threshold > 1 else [] %}
    {% if not versions %}{% do return(sql) %}{% endif %}
    {% set part = config.require('partition_by') %}
    {% set key = [part] + model.config.meta.export.key %}
    {% set types = columns_of(sql) %}
    {% set wrapped %}
        with computed as (

            {{ sql }}

        ),

        published as (

            {% for week, snapshot_id in versions %}
                {% set version = this ~ ' version as of ' ~ snapshot_id %}
                {% set stored = columns_of('select * from ' ~ version) %}
                select
                    {{ loop.index }} as version_place,
                    {% for name, type in types.items() %}
                        cast({{ name if name in stored else 'null' }} as {{ type }}) as {{ name }}
                        {{- ',' if not loop.last }}
                    {% endfor %}
                from {{ version }}
                where {{ part }} = '{{ week }}'
                {{ 'union all' if not loop.last }}
            {% endfor %}

        ),

        by_group as (

            select
                {{ key | join(', ') }},
                bool_or({{ suppressed }}) as was_suppressed,
                collect_list({{ persons }}) as persons_before,
                max_by(struct(*), version_place) as newest
            from published
            group by {{ key | join(', ') }}

        )

        select
            {% for name in types %}
                {% if name in key %}
                    computed.{{ name }}
                {% elif name == suppressed %}
                    computed.{{ name }} or coalesce(by_group.was_suppressed, false) as {{ name }}
                {% else %}
                    case
                        when computed.{{ suppressed }} or by_group.was_suppressed then null
                        when
                            exists(
                                by_group.persons_before,
                                earlier -> abs(computed.{{ persons }} - earlier) < {{ threshold }}
                            )
                            then by_group.newest.{{ name }}
                        else computed.{{ name }}
                    end as {{ name }}
                {% endif %}
                {{- ',' if not loop.last }}
            {% endfor %}
        from computed
        left join by_group
            on {% for name in key %}computed.{{ name }} <=> by_group.{{ name }}{{ ' and ' if not loop.last }}{% endfor %}
    {% endset %}
    {% do return(wrapped) %}
{% endmacro %}


{# The weeks that a run builds and their published snapshots, the oldest first. #}
{% macro published_versions() %}
    {% set table = load_relation(this) %}
    {% if not table %}{% do return([]) %}{% endif %}
    {% set found = [] %}
    {% for row in run_query(
        "select distinct regexp_extract(tags.name, '[0-9]{4}-W[0-9]{2}', 0) as week, tags.snapshot_id, committed_at"
        ~ ' from ' ~ table ~ '.refs as tags inner join ' ~ table ~ '.snapshots using (snapshot_id)'
        ~ " where tags.name rlike '^export-.*-v[0-9]+$'"
        ~ " and regexp_extract(tags.name, '[0-9]{4}-W[0-9]{2}', 0) in ('"
        ~ with_parts_of_table(named_parts(model)) | join("', '") ~ "')"
        ~ ' order by committed_at, tags.snapshot_id'
    ).rows %}
        {% do found.append((row[0], row[1])) %}
    {% endfor %}
    {% do return(found) %}
{% endmacro %}
