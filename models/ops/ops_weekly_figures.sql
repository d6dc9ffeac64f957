-- a table, because the snapshot of its history reads it many times
{{ config(materialized='table') }}

with figures as (

    {% call(dataset) every_dataset() %}
        select
            '{{ dataset.name }}' as dataset_name,
            {{ dataset.week }} as week_label,
            count(*) as total_rows,
            try_sum(cast({{ dataset.quantity or 'null' }} as bigint)) as quantity,
            try_cast(try_sum({{ dataset.money or 'null' }}) as decimal(18, 2)) as money,
            {{ masked_with(dataset.mart, dataset.key_version) }} as key_version,
            -- changes with any exported value of any row of the week
            cast(sum(cast(
                xxhash64({{ exported_columns(dataset.name) }}) as decimal(20, 0)
            )) as string) as fingerprint
        from {{ ref(dataset.mart) }}
        group by {{ dataset.week }}
    {% endcall %}

),

final as (

    select
        -- keys
        concat(dataset_name, '/', week_label) as figures_id,
        dataset_name,
        week_label,

        -- figures
        total_rows,
        quantity,
        money,
        key_version,
        fingerprint

    from figures
    -- the figures of a week that is not over change by nature
    where week_label <= '{{ last_complete_week() }}'

)

select * from final
