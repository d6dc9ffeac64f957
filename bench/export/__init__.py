"""An export of five million rows beside DuckDB's COPY of the same table."""
