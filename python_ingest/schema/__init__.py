"""Avro schemas: written out, compared by version, and the columns that hold their fields."""
