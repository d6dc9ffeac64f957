"""Services of one test: PostgreSQL, S3, a secured broker, a Spark cluster, another JVM."""
