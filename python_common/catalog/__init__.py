"""The Iceberg catalog through PyIceberg: tables, commits, small tables, property keys."""
