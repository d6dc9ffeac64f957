with final as (

    select
        -- key
        trade_key,

        -- attributes
        side,
        symbol,
        quantity,

        -- money
        price,

        -- masked
        {{ masked('stg_brokerage__trades', 'user_id', as='pseudonym') }} as trader_pseudonym,
        {{ pii_key_version() }} as key_version,

        -- time
        traded_at,
        is_event_time_valid,
        ingest_batch

    from {{ ref('int_trades_deduplicated') }}

)

select * from final
