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

final as (

    select
        -- keys
        concat_ws('/', datasets.dataset_name, weeks.week_label) as export_week_id,
        datasets.dataset_name,
        weeks.week_label,

        -- decision
        if(count_if(findings.effect <> 'warns') > 0, 'withhold', 'publish') as verdict,
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

)

select * from final
