with sides as (

    select
        (select count(*) from {{ ref('int_payments_deduplicated') }}) as payments,
        (select count(*) from {{ ref('int_payments_quarantined') }}) as quarantined,
        (
            select count(*)
            from {{ ref('int_payments_masked') }}
            where has_valid_confirmation_code
        ) as clean

)

select *
from sides
where payments <> clean + quarantined
