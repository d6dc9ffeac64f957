with trades as (

    select
        *,
        {{ is_plausible('traded_at', 'ingested_at') }} as has_plausible_time
    from {{ ref('int_trades_masked') }}

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
        try_cast(quantity * price as decimal(20, 2)) as total_price,

        -- masked
        trader_pseudonym,
        key_version,

        -- time
        traded_at,
        has_plausible_time,
        case when has_plausible_time then {{ iso_week('traded_at') }} end as traded_week

    from trades

)

select * from final
