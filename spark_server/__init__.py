"""What runs Spark in production and tests: Java, jars, one configuration, and the Thrift server."""
