"""The one Spark configuration, as the ingester's session and the Thrift server both get it."""

import os
import shlex
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pyspark
from pyspark import SparkContext
from pyspark.sql import SparkSession

from lakehouse import connections, private
from lakehouse.environment import PROJECT_ROOT
from lakehouse.errors import UserError
from lakehouse.settings import CATALOG_NAME, Settings
from spark_server import java

DEFAULTS = PROJECT_ROOT / "conf" / "spark-defaults.conf"
LOGGING = PROJECT_ROOT / "conf" / "log4j2.properties"
JARS_DIR = PROJECT_ROOT / "spark_server" / "target" / "spark"
CLASS_ARCHIVE = JARS_DIR.with_name("spark.jsa")
"""What spark_server/class_archive.py makes: the JVM need not load and verify these classes again."""
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


def write_properties(settings: Settings, path: Path, more: Mapping[str, str] | None = None) -> Path:
    """Write the whole configuration of a Spark process to a file that its owner alone may read, and return its path.

    On the command line everybody on the machine could read it.
    """
    lines = {**configuration(settings), **(more or {})}
    escaped = (f"{name} {value.replace(chr(92), chr(92) * 2)}\n" for name, value in lines.items())
    return private.write(path, DEFAULTS.read_text() + "\n" + "".join(escaped))


def process_environment(properties: Path = DEFAULTS) -> dict[str, str]:
    """Return the environment a Spark process starts with: our conf/, the class archive, and loopback only."""
    return {
        **os.environ,
        "SPARK_HOME": str(SPARK_HOME),
        # Not conf/: it would stand on the class path, and there is no archive for a class path with directories.
        "SPARK_CONF_DIR": str(SPARK_HOME / "conf"),
        "SPARK_SUBMIT_OPTS": _before(_java_options(), "SPARK_SUBMIT_OPTS"),
        "PYSPARK_SUBMIT_ARGS": _before(
            f"--properties-file {shlex.quote(str(properties))}", "PYSPARK_SUBMIT_ARGS", "pyspark-shell"
        ),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }


@contextmanager
def _variables(values: Mapping[str, str]) -> Iterator[None]:
    """Set variables for a child that is started inside: other children need no decrypted key."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _before(own: str, variable: str, default: str = "") -> str:
    """Return a variable as the caller has set it, what is ours before that, once."""
    given = os.environ.get(variable, default)
    return given if own in given else f"{own} {given}".strip()


def _java_options() -> str:
    """Return what has to stand on the JVM's command line."""
    options = [f"-Dlog4j2.configurationFile=file:{LOGGING}"]
    if CLASS_ARCHIVE.exists():
        # An archive that other jars or another Java made is of no use, and no harm: the JVM would only warn, on stdout.
        options += [f"-XX:SharedArchiveFile={CLASS_ARCHIVE}", "-Xlog:cds=off", "-Xlog:cds+dynamic=off"]
    return " ".join(map(shlex.quote, options))


def session(settings: Settings, app_name: str) -> SparkSession:
    """Return a Spark session with the shared configuration.

    Raises:
        UserError: there is no Java that runs Spark, or the jars are missing.
    """
    java.executable()
    require_jars()
    with tempfile.TemporaryDirectory(prefix="lakehouse-spark-") as directory:
        properties = write_properties(settings, Path(directory) / "spark.properties")
        with _variables(process_environment(properties) | connections.java_environment(settings)):
            SparkContext._ensure_initialized()
    # A JVM that a session before started, with other settings, is told here, and not on a command line.
    builder = SparkSession.builder.appName(app_name)
    for key, value in configuration(settings).items():
        builder = builder.config(key, value)
    return builder.getOrCreate()
