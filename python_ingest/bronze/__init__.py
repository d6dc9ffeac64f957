"""The bronze table: columns, schemas, positions, commits, files."""
