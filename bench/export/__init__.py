"""An export of five million rows against DuckDB's COPY of the same table."""
