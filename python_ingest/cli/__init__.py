"""`lakehouse ingest`: the commands, their options and what they print.

The ingester's top floor: console/ alone imports it.
"""
