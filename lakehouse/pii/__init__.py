"""Personal data: that every column has a class, and that none leaves the restricted layers without its mask.

The exporter, erasure/ and console/ may import it.
"""
