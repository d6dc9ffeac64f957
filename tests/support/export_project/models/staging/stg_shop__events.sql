select event_id, event_at, note, amount, tiny, quantity, sold_on, is_gift
from {{ source('shop', 'events') }}
