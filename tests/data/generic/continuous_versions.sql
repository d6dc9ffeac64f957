{# The versions of each key follow each other: one ends when the next begins, and only the last has
   no end. So no two overlap, and no moment after the first is in none. A version that was replaced
   at the time it began lasted for no moment, and is excluded. #}
{% test continuous_versions(model, column_name) %}
    with periods as (

        select
            {{ column_name }},
            valid_from,
            valid_to,
            lead(valid_from) over (
                partition by {{ column_name }}
                order by valid_from
            ) as next_valid_from
        from {{ model }}
        where
            valid_to is null
            or valid_from <> valid_to

    )

    select *
    from periods
    where valid_to is distinct from next_valid_from
{% endtest %}
