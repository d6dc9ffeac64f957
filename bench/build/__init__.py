"""The dbt build after the same increment on a short and on a long history."""
