"""Where `lakehouse` was until now: an installation made before needs `make setup` to know console/."""

from console.cli import main

__all__ = ["main"]
