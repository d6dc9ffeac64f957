"""Versions of a week, and where they go: publish, retain, compare two, audit.

telling/ and what stands above it may import it.
"""
