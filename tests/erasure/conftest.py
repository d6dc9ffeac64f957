"""Spark as the tests of the ingester have it."""

from tests.python_ingest.conftest import spark

__all__ = ["spark"]
