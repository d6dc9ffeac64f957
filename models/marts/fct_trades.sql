{{ config(
    materialized='incremental',
    unique_key='trade_key',
    incremental_strategy='affected_keys',
    follows=['int_trades_masked'],
    partition_by='truncate(7, traded_week)',
) }}

with affected as (

    {% call affected_keys() %}
    select trade_key
    from {{ ref('int_trades_masked') }}
    where {{ changed_in(ref('int_trades_masked')) }}
    {% endcall %}

),

final as (

    select
        -- key
        trade_key,

        -- attributes
        side,
        symbol,

        -- measures
        quantity,
        price,
        try_cast(try_multiply(quantity, price) as decimal(28, 2)) as total_price,

        -- masked
        trader_pseudonym,
        key_version,

        -- time
        traded_at,
        is_event_time_valid,
        {{ event_week('traded_at') }} as traded_week

    from {{ ref('int_trades_masked') }}
    where {{ in_affected('trade_key') }}

)

select * from final
