"""What is exported of a week: the datasets that dbt declares, whether they are complete, and their rows.

The exporter's ground: every room of it may import this one.
"""
