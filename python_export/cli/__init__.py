"""`lakehouse export`: the commands, what they print and their exit codes.

The exporter's top floor: console/ imports it, and the commands of weekly_job/ and erasure/.
"""
