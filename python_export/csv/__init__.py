"""CSV files: unloaded by Spark, compared by DuckDB, scanned for personal data."""
