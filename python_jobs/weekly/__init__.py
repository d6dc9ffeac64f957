"""`lakehouse weekly`: the one command that a scheduler calls, from Kafka to published files."""
