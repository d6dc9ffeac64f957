"""The page of a week, for its readers.

run.py, cli/, erasure/ and the weekly job may import it.
"""
