-- last, so that every other table exists
{% call(dataset) every_dataset(separator='') %}
-- depends_on: {{ ref('exp_weekly__' ~ dataset.name) }}
{% endcall %}
-- depends_on: {{ ref('ops_ingest_batches') }}

with files as (

    {% call(table) every_stored_table() %}
    select
        '{{ table.schema }}' as schema_name,
        '{{ table.identifier }}' as table_name,
        content,
        record_count,
        file_size_in_bytes
    from {{ table }}.files
    {% endcall %}

),

snapshots as (

    {% call(table) every_stored_table() %}
    select
        '{{ table.schema }}' as schema_name,
        '{{ table.identifier }}' as table_name,
        committed_at
    from {{ table }}.snapshots
    {% endcall %}

),

summed as (

    select
        schema_name,
        table_name,
        count_if(content = 0) as data_files,
        count_if(content = 0 and file_size_in_bytes < 32 * 1024 * 1024) as small_files,
        count_if(content <> 0) as delete_files,
        sum(case when content <> 0 then record_count else 0 end) as deleted_rows,
        sum(file_size_in_bytes) as total_bytes
    from files
    group by schema_name, table_name

),

counted as (

    select
        schema_name,
        table_name,
        count(*) as snapshot_count,
        max(committed_at) as last_committed_at
    from snapshots
    group by schema_name, table_name

),

final as (

    select
        -- keys
        concat(counted.schema_name, '.', counted.table_name) as table_id,
        counted.schema_name,
        counted.table_name,

        -- files
        coalesce(summed.data_files, 0) as data_files,
        try_divide(summed.small_files, summed.data_files) as small_file_share,
        coalesce(summed.delete_files, 0) as delete_files,
        coalesce(summed.deleted_rows, 0) as deleted_rows,
        coalesce(summed.total_bytes, 0) as total_bytes,

        -- commits
        counted.snapshot_count,
        counted.last_committed_at

    from counted
    left join summed
        on
            counted.schema_name = summed.schema_name
            and counted.table_name = summed.table_name

)

select * from final
