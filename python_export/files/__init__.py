"""One file: unloaded by Spark, and compared with its table by another engine.

publishing/ and what stands above it may import it.
"""
