"""What runs Spark, in production and tests alike: Java, jars, one configuration, the Thrift server, the class archive.

python_ingest/, local_stack/ and what stands above them may import it.
"""
