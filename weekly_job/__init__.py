"""`lakehouse weekly`: the one command that a scheduler calls."""
