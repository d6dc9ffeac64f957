{{ config(materialized='table') }}

{% set row_count_checks = row_counts_of_topics() + row_counts_of_datasets() %}
{% set row_count_checks = row_count_checks + retail_row_count_checks() %}

with terms as (

    {{ row_counts(row_count_checks) }}

),

checks as (

    select
        term.check_name,
        term.subject,
        sum(term.left_rows) as left_rows,
        sum(term.right_rows) as right_rows
    from terms
    group by term.check_name, term.subject

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
