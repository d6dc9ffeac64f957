"""One file: unloaded by Spark, and compared with its table by another engine."""
