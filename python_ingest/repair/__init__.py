"""What changes rows that have landed: dead letters that can be decoded now.

cli/ may import it.
"""
