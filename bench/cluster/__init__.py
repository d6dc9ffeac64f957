"""The same work on one machine and on a Spark cluster of as many cores."""
