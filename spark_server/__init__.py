"""What runs Spark in production and tests: Java, jars, one configuration, the Thrift server, the class archive."""
