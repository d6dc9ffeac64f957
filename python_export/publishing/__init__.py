"""Versions of a week, and where they go: publish, tag, compare two, audit."""
