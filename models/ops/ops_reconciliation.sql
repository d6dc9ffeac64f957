{{ config(materialized='table') }}

with checks as (

    {{ row_counts_of_topics() }}
    union all
    {{ row_counts_of_datasets() }}
    {{ retail_row_count_checks() }}

),

final as (

    select
        check_name,
        subject,
        left_rows,
        right_rows,
        left_rows - right_rows as difference
    from checks

)

select * from final
