"""The independent check: what a plain consumer reads, against what the table holds.

It imports nothing of landing/ and schema/, or it would repeat their mistakes.
"""
