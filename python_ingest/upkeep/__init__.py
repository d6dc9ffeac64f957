"""Maintenance, status and metrics of the bronze tables, and how far a topic is."""
