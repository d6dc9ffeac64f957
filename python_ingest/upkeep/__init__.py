"""Maintenance, status and metrics of the bronze tables, and how far a topic is.

cli/, the weekly job, erasure/ and the exporter may import it.
"""
