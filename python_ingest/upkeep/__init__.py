"""Maintenance, status and metrics of the bronze tables.

cli/ and the weekly job may import it.
"""
