"""The ingester: every Kafka record becomes one row of a bronze Iceberg table, exactly once."""
