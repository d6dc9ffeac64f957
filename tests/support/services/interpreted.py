"""A Thrift server that generates no code: that takes a cold one longer than a small table's rows.

The main lake's server, those of long tests and those of a cluster generate it.
"""

from pathlib import Path

INTERPRETED = {"LAKEHOUSE_SPARK_CONF": str(Path(__file__).with_suffix(".conf"))}
