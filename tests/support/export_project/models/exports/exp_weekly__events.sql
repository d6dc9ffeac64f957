select event_id, event_at, note, amount, tiny, quantity, sold_on, is_gift
from {{ ref('stg_shop__events') }}
where {{ in_exported_weeks(iso_week('event_at')) }}
