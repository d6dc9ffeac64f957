"""The independent check: what a plain consumer reads, against what the table holds.

cli/ and the weekly job may import it. It imports nothing of landing/ and schema/, or it would repeat their mistakes.
"""
