"""Settings of Spark: batches and builds with each at Spark's default, against the shipped configuration."""
