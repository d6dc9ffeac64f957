"""Services of a test's own: PostgreSQL, S3, a secured broker, a Spark cluster, another JVM."""
