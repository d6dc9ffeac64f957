"""CSV files: written by DuckDB, compared by pyarrow and PyIceberg, scanned for personal data."""
