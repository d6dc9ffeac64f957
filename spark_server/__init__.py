"""Spark in production and tests: Java, jars, configuration and the Thrift server."""
