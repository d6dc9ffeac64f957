"""Helpers that tests of several rooms share.

The benchmarks import it too, and nothing else does.
"""
