"""Helpers that tests of several rooms share. The benchmarks may import them too."""
