with datasets as (

    {% call(name, has_small_groups, topics, origins) every_export() %}
        select
            '{{ name }}' as dataset_name,
            {{ has_small_groups }} as has_small_groups,
            array('{{ topics | join("', '") }}') as topics,
            array('{{ origins | join("', '") }}') as origins
    {% endcall %}

),

topic_weeks as (

    select * from {{ ref('ops_topic_weeks') }}

),

issues as (

    select * from {{ source_or_empty('export', 'issues') }}

),

outbox as (

    select * from {{ source_or_empty('export', 'export_outbox') }}

),

exported_figures as (

    select * from {{ source_or_empty('export', 'exported_figures') }}

),

holds as (

    select * from {{ source_or_empty('export', 'export_holds') }}

),

weeks as (

    select distinct week_label from topic_weeks

),

topics as (

    select distinct topic
    from datasets
        lateral view explode(topics) as topic
    -- an export of seeds alone has none
    where topic <> ''

),

-- what withholds a week, or only datasets with small groups, or is a warning to readers
findings as (

    select
        topics.topic as origin,
        weeks.week_label,
        'withholds' as effect,
        concat('no run has read the topic ', topics.topic) as finding
    from topics
    cross join weeks
    left join topic_weeks
        on
            topics.topic = topic_weeks.topic
            and weeks.week_label = topic_weeks.week_label
    where topic_weeks.topic is null

    union all

    select
        topic as origin,
        week_label,
        'withholds' as effect,
        coalesce(error, concat('behind: ', watermark)) as finding
    from topic_weeks
    where complete_by is null

    union all

    select
        topic as origin,
        week_label,
        'warns' as effect,
        concat(week_label, ' is complete by silence: ', watermark) as finding
    from topic_weeks
    where complete_by = 'silence'

    union all

    select
        topic as origin,
        week_label,
        'withholds small groups' as effect,
        concat(
            'behind: ', watermark, ', and silence completes no dataset with suppressed groups'
        ) as finding
    from topic_weeks
    where complete_by = 'silence'

    union all

    select
        topic as origin,
        week_label,
        'withholds' as effect,
        concat(
            topic, ': ', stamped_dead_letters, ' of the ', stamped_records, ' records of ',
            week_label, ' are dead letters, more than its max_dead_letters'
        ) as finding
    from topic_weeks
    where has_too_many_dead_letters

    union all

    select
        issues.origin,
        weeks.week_label,
        'withholds' as effect,
        issues.message as finding
    from issues
    inner join weeks
        on coalesce(issues.week_label = weeks.week_label, true)

),

decided as (

    select
        datasets.dataset_name,
        weeks.week_label,
        sort_array(collect_set(if(findings.effect <> 'warns', findings.finding, null))) as reasons,
        sort_array(collect_set(if(findings.effect = 'warns', findings.finding, null))) as warnings
    from datasets
    cross join weeks
    left join findings
        on
            weeks.week_label = findings.week_label
            and array_contains(datasets.origins, findings.origin)
            and (datasets.has_small_groups or findings.effect <> 'withholds small groups')
    group by datasets.dataset_name, weeks.week_label

),

-- what an export root has of a week: the versions that readers have, without those that have a
-- row of their withdrawal, or what stops it, by <export root>/<dataset>/<week>
of_roots as (

    select
        rtrim('/', versions.export_root) as export_root,
        versions.dataset as dataset_name,
        versions.week as week_label,
        versions.version as published_version,
        null as skipped,
        null as held
    from outbox as versions
    left anti join outbox as withdrawn
        on
            withdrawn.kind = 'withdrawn'
            and versions.export_root = withdrawn.export_root
            and versions.dataset = withdrawn.dataset
            and versions.week = withdrawn.week
            and versions.version = withdrawn.version
    where versions.kind = 'version'

    union all

    select
        substring_index(address, '/', size(split(address, '/')) - 2) as export_root,
        element_at(split(address, '/'), -2) as dataset_name,
        element_at(split(address, '/'), -1) as week_label,
        null as published_version,
        skipped,
        null as held
    from exported_figures
    where skipped is not null

    union all

    select
        substring_index(address, '/', size(split(address, '/')) - 2) as export_root,
        element_at(split(address, '/'), -2) as dataset_name,
        element_at(split(address, '/'), -1) as week_label,
        null as published_version,
        null as skipped,
        concat(left(sha256, 12), ': ', reason) as held
    from holds
    where approved is null

),

exported as (

    select
        export_root,
        dataset_name,
        week_label,
        max(published_version) as published_version,
        max(skipped) as skipped,
        max(held) as held
    from of_roots
    group by export_root, dataset_name, week_label

),

final as (

    select
        -- keys
        concat_ws(
            '/', exported.export_root, decided.dataset_name, decided.week_label
        ) as export_week_id,
        exported.export_root,
        decided.dataset_name,
        decided.week_label,

        -- decision
        case
            when size(decided.reasons) > 0 then 'withhold'
            when exported.skipped is not null then 'skipped'
            when exported.held is not null then 'held'
            when exported.published_version is not null then 'published'
            else 'publish'
        end as verdict,
        decided.reasons,
        decided.warnings,

        -- what has become of it
        exported.published_version,
        exported.skipped,
        exported.held

    from decided
    left join exported
        on
            decided.dataset_name = exported.dataset_name
            and decided.week_label = exported.week_label

)

select * from final
