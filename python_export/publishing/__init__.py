"""Versions of a week and where they go: publish, keep, compare, audit.

telling/, report/ and what stands on them may import it.
"""
