"""Sub-commands of `lakehouse` for developers."""
