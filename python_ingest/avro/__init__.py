"""Avro schemas: types, walks over them, expansion and merging."""
