"""The command `lakehouse`: the list of its sub-commands, and where an error becomes a line and an exit code.

The top floor: it composes the rooms below, and nothing imports it.
"""
