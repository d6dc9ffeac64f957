"""The one Spark configuration, as the ingester's session and the Thrift server both get it."""

import os
from pathlib import Path

import pyspark
from pyspark.sql import SparkSession

from lakehouse import connections, java
from lakehouse.errors import UserError
from lakehouse.settings import CATALOG_NAME, PROJECT_ROOT, Settings

CONF_DIR = PROJECT_ROOT / "conf"
JARS_DIR = PROJECT_ROOT / "local_stack" / "target" / "spark"
SPARK_HOME = Path(pyspark.__file__).parent


def configuration(settings: Settings) -> dict[str, str]:
    """Return what conf/spark-defaults.conf cannot hold because it differs by environment."""
    catalog = f"spark.sql.catalog.{CATALOG_NAME}"
    # Jars stand on the class path, not in spark.jars: closing a Thrift session closes the loader of added jars.
    return {
        f"{catalog}.uri": settings.catalog_uri,
        f"{catalog}.warehouse": settings.warehouse,
        "spark.driver.extraClassPath": f"{JARS_DIR}/*",
        "spark.executor.extraClassPath": f"{JARS_DIR}/*",
    }


def require_jars() -> None:
    """Stop with the remedy when the jars have not been fetched.

    Raises:
        UserError: there are none.
    """
    if not any(JARS_DIR.glob("*.jar")):
        raise UserError(f"The jars are not in {JARS_DIR}", "Run `make setup`")


def process_environment() -> dict[str, str]:
    """Return the environment a Spark process starts with: our conf/ and loopback only."""
    return {
        **os.environ,
        "SPARK_HOME": str(SPARK_HOME),
        "SPARK_CONF_DIR": str(CONF_DIR),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }


def session(settings: Settings, app_name: str) -> SparkSession:
    """Return a Spark session with the shared configuration.

    Raises:
        UserError: there is no Java that runs Spark, or the jars are missing.
    """
    java.executable()
    require_jars()
    os.environ.update(process_environment() | connections.java_environment(settings))
    builder = SparkSession.builder.appName(app_name)
    for key, value in configuration(settings).items():
        builder = builder.config(key, value)
    return builder.getOrCreate()
