"""Sub-commands of `lakehouse` that are one file each."""
