"""Helpers that tests of several packages share.

The benchmarks import it too, and nothing else does.
"""
