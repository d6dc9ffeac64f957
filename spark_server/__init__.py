"""What runs Spark for production and tests alike: the jars, fetched as the lock beside the pom says."""
