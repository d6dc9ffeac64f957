with reads as (

    select * from {{ source_or_empty('export', 'topic_reads') }}

),

counted as (

    select
        topic,
        counted_week.starts_at,
        counted_week.records,
        counted_week.dead_letters
    from reads
        lateral view explode(weeks) as counted_week

),

partitions as (

    select
        topic,
        landed.kafka_partition,
        landed.newest_at,
        landed.is_unread
    from reads
        lateral view explode(partitions) as landed

),

first_and_last_week as (

    select
        min(starts_at) as first_week,
        date_trunc('week', current_timestamp()) - interval 7 days as last_week
    from counted
    where starts_at >= timestamp '2000-01-03 00:00:00'

),

weeks as (

    select
        starts_at,
        starts_at + interval 7 days as ends_at
    from first_and_last_week
        lateral view explode(
            sequence(least(coalesce(first_week, last_week), last_week), last_week, interval 7 days)
        ) as starts_at

),

-- the partitions that are past the end of a week, and those that may still have records of it
partition_weeks as (

    select
        partitions.topic,
        weeks.starts_at,
        max(partitions.newest_at) as newest_at,
        count(partitions.newest_at) as landed_partitions,
        count_if(partitions.newest_at >= weeks.ends_at) as passed_partitions,
        sort_array(collect_list(
            case
                when partitions.is_unread and coalesce(partitions.newest_at < weeks.ends_at, true)
                    then partitions.kafka_partition
            end
        )) as unread_partitions
    from partitions
    cross join weeks
    group by partitions.topic, weeks.starts_at

),

topic_weeks as (

    select
        reads.*,
        weeks.starts_at,
        weeks.ends_at,
        partition_weeks.newest_at,
        partition_weeks.unread_partitions,
        coalesce(partition_weeks.passed_partitions, 0) > 0 as is_passed,
        case
            when reads.error is not null then false
            -- without the broker's answer the partitions of the table count alone
            when reads.broker_error is not null
                then
                    coalesce(partition_weeks.passed_partitions, 0) > 0
                    and partition_weeks.passed_partitions = partition_weeks.landed_partitions
            else
                reads.asked_at >= weeks.ends_at
                and coalesce(size(partition_weeks.unread_partitions), 0) = 0
        end as is_read
    from reads
    cross join weeks
    left join partition_weeks
        on
            reads.topic = partition_weeks.topic
            and weeks.starts_at = partition_weeks.starts_at

),

producers as (

    select distinct
        producer,
        starts_at
    from topic_weeks
    where is_read and is_passed

),

final as (

    select
        -- keys
        concat_ws('/', topic_weeks.topic, {{ iso_week('topic_weeks.starts_at') }}) as topic_week_id,
        topic_weeks.topic,
        {{ iso_week('topic_weeks.starts_at') }} as week_label,

        -- completeness
        case
            when not topic_weeks.is_read then null
            when topic_weeks.is_passed then 'record'
            when producers.producer is not null then 'producer'
            when
                unix_timestamp(topic_weeks.asked_at)
                >= unix_timestamp(topic_weeks.ends_at) + topic_weeks.silence_seconds
                then 'silence'
        end as complete_by,
        concat(
            topic_weeks.topic,
            case
                when topic_weeks.newest_at > timestamp '1970-01-01 00:00:00'
                    then concat(' at ', left(cast(topic_weeks.newest_at as string), 19), ' UTC')
                when exists(topic_weeks.weeks, counted_week -> counted_week.records > 0)
                    then ' has landed nothing that could be decoded'
                else ' has landed nothing'
            end,
            case
                when topic_weeks.broker_error is not null
                    then concat(' (', topic_weeks.broker_error, ')')
                when size(topic_weeks.unread_partitions) > 0
                    then
                        concat(
                            ' (partitions not read to their ends: ',
                            array_join(topic_weeks.unread_partitions, ', '),
                            ')'
                        )
                else ''
            end
        ) as watermark,
        topic_weeks.error,
        topic_weeks.asked_at,

        -- figures
        coalesce(counted.records, 0) as stamped_records,
        coalesce(counted.dead_letters, 0) as stamped_dead_letters,
        coalesce(
            counted.dead_letters > topic_weeks.max_dead_letters
            and counted.dead_letters > topic_weeks.max_dead_letter_share * counted.records,
            false
        ) as has_too_many_dead_letters

    from topic_weeks
    left join producers
        on
            topic_weeks.producer = producers.producer
            and topic_weeks.starts_at = producers.starts_at
    left join counted
        on
            topic_weeks.topic = counted.topic
            and topic_weeks.starts_at = counted.starts_at

)

select * from final
