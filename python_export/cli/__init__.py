"""`lakehouse export`: the commands and what they print.

The exporter's top floor: console/ imports it, and nothing else.
"""
