"""What a laptop needs in place of a platform: a broker, a schema registry, a Spark Thrift server and sample data."""
