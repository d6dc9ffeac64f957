"""`lakehouse ingest`: the commands, their options and what they print."""
