"""Spark that generates no code.

That of a cluster and of tests without a separate lake generates it.
"""

from python_common.config.environment import PROJECT_ROOT

INTERPRETED = {"LAKEHOUSE_SPARK_CONF": str(PROJECT_ROOT / "conf" / "small-data.conf")}
