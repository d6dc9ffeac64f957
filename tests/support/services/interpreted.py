"""Spark that generates no code: that of `make test` and of separate lakes, not of a cluster and other slow tests."""

from python_common.config.environment import PROJECT_ROOT

INTERPRETED = {"LAKEHOUSE_SPARK_CONF": str(PROJECT_ROOT / "conf" / "small-data.conf")}
