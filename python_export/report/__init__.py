"""The page of a week, for its readers.

run.py, cli/ and the weekly job may import it.
"""
