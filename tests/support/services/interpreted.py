"""Spark that generates no code: that takes a cold one longer than a small table's rows.

That of the main lake, of a cluster and of most tests generates it.
"""

from pathlib import Path

INTERPRETED = {"LAKEHOUSE_SPARK_CONF": str(Path(__file__).with_suffix(".conf"))}
