"""The ingester: every Kafka record becomes one row of a bronze Iceberg table, exactly once.

python_export/ asks it what is declared and how far a topic is;
weekly_job/ and console/ run it, erasure/ uses its repair.
"""
