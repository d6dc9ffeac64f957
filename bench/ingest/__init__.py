"""The ingester against its peers: the same topic landed in the same catalog, side by side."""
