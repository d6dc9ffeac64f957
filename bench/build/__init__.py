"""The dbt build: whole, beside DuckDB, and model by model after the same increment on a short and a long history."""
