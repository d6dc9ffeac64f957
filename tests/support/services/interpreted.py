"""Spark that generates no code.

That of the main lake, of a cluster and of most tests generates it.
"""

from python_common.config.environment import PROJECT_ROOT

INTERPRETED = {"LAKEHOUSE_SPARK_CONF": str(PROJECT_ROOT / "conf" / "small-data.conf")}
