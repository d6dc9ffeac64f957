"""The page of a week, for readers.

The commands and the weekly job may import it.
"""
