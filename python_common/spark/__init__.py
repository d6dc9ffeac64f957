"""What runs Spark: Java, jars, one configuration, the Thrift server, its client, a session."""
