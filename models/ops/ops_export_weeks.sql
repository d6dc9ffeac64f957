with datasets as (

    {% call(name, has_small_groups, origins) every_export() %}
        select
            '{{ name }}' as dataset_name,
            {{ has_small_groups }} as has_small_groups,
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

-- what is not to be trusted in a week, and why
reasons as (

    select
        topic as origin,
        week_label,
        coalesce(error, concat('behind: ', watermark)) as reason,
        false as of_suppressed
    from topic_weeks
    where complete_by is null

    union all

    select
        topic as origin,
        week_label,
        concat(
            'behind: ', watermark, ', and silence completes no dataset with suppressed groups'
        ) as reason,
        true as of_suppressed
    from topic_weeks
    where complete_by = 'silence'

    union all

    select
        topic as origin,
        week_label,
        concat(
            topic, ': ', stamped_dead_letters, ' of the ', stamped_records, ' records of ',
            week_label, ' are dead letters, more than its max_dead_letters'
        ) as reason,
        false as of_suppressed
    from topic_weeks
    where has_too_many_dead_letters

    union all

    select
        issues.origin,
        weeks.week_label,
        issues.message as reason,
        issues.of_suppressed
    from issues
    inner join weeks
        on coalesce(issues.week_label = weeks.week_label, true)

),

reasons_of_datasets as (

    select
        datasets.dataset_name,
        reasons.week_label,
        sort_array(collect_set(reasons.reason)) as reasons
    from datasets
    inner join reasons
        on
            array_contains(datasets.origins, reasons.origin)
            and (datasets.has_small_groups or not reasons.of_suppressed)
    group by datasets.dataset_name, reasons.week_label

),

final as (

    select
        -- keys
        concat_ws('/', datasets.dataset_name, weeks.week_label) as export_week_id,
        datasets.dataset_name,
        weeks.week_label,

        -- decision
        if(reasons_of_datasets.reasons is null, 'publish', 'withhold') as verdict,
        coalesce(reasons_of_datasets.reasons, array()) as reasons

    from datasets
    cross join weeks
    left join reasons_of_datasets
        on
            datasets.dataset_name = reasons_of_datasets.dataset_name
            and weeks.week_label = reasons_of_datasets.week_label

)

select * from final
