"""Personal data: that every column has a class, and that none leaves the restricted layers without its mask."""
