"""Versions of a week, and where they go: publish, retain, compare two, audit."""
