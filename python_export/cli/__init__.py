"""`lakehouse export`: the commands, what they print and their exit codes."""
