"""What changes rows that have landed, for instance dead letters that can be decoded now.

cli/ and the weekly job may import it.
"""
