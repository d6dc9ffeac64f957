"""The command `lakehouse`: the list of its sub-commands, and where an error becomes a line and an exit code."""
