"""One file: unloaded by Spark, and compared with its table by other engines.

publishing/ and what stands on it may import it.
"""
