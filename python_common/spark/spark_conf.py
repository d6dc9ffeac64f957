"""The Spark configuration of the ingester's session and the Thrift server."""

import os
import shlex
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

import pyspark
from pyspark import SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from python_common import private_files
from python_common.catalog import catalog_properties
from python_common.config import connections
from python_common.config.environment import PROJECT_ROOT, TARGET, changed_environment
from python_common.config.settings import CATALOG_NAME, Settings, is_secret
from python_common.errors import UserError
from python_common.spark import java

DEFAULTS = PROJECT_ROOT / "conf" / "spark-defaults.conf"
LOGGING = PROJECT_ROOT / "conf" / "log4j2.properties"
JARS_DIR = TARGET / "spark"
CLASSES_JAR = JARS_DIR / "lakehouse.jar"
CLUSTER_DIR = JARS_DIR.with_name("cluster")
"""Jars of a lake on servers; `make setup EXTRAS=cluster` makes them."""
CLASS_ARCHIVE = JARS_DIR.with_name("spark.jsa")
"""The class archive of python_dev/stack/first_start.py: the JVM need not load and verify these classes again."""
SPARK_HOME = Path(pyspark.__file__).parent
JAVA_TMP = Path("/tmp")  # noqa: S108
"""Where Java unpacks native libraries, such as SQLite's, if no option names another directory."""
ESCAPED = str.maketrans({"\\": r"\\", "\n": r"\n"})
"""Characters of values that Java's properties escape."""


def configuration(settings: Settings) -> dict[str, str]:
    """Return the properties that differ by environment, so that conf/spark-defaults.conf cannot hold them.

    Raises:
        UserError: a file of properties is invalid.
    """
    catalog = f"spark.sql.catalog.{CATALOG_NAME}"
    properties = own_properties(settings)
    for name in properties:
        if name.startswith(f"{catalog}."):
            variable = catalog_properties.FILE
            raise UserError(
                f"{settings.spark_conf} sets {name}", f"Set it in the file of {variable}: Python reads it too"
            )
    # Jars are on the class path, not in spark.jars: closing a Thrift session closes the loader of added jars.
    on_one_machine = catalog_properties.is_on_one_machine(settings)
    folders = [JARS_DIR] if on_one_machine else [JARS_DIR, CLUSTER_DIR]
    return {
        **({"spark.hadoop.fs.file.impl": "ModesFileSystem"} if on_one_machine else {}),
        **{f"{catalog}.{name}": value for name, value in catalog_properties.for_spark(settings).items()},
        "spark.driver.extraClassPath": f"{JARS_DIR}/*",
        "spark.executor.extraClassPath": ":".join(f"{folder}/*" for folder in folders),
        **properties,
    }


def own_properties(settings: Settings) -> dict[str, str]:
    """Return the properties of LAKEHOUSE_SPARK_CONF; a UserError if the file is invalid."""
    if settings.spark_conf is None:
        return {}
    variable = Settings.variable("spark_conf")
    properties = catalog_properties.read_properties(settings.spark_conf, variable)
    if any(map(is_secret, properties)):
        catalog_properties.require_closed(settings.spark_conf, variable)
    return properties


def master(settings: Settings) -> str:
    """Return where Spark's executors are."""
    return own_properties(settings).get("spark.master", "local[*]")


def _of_executors(settings: Settings) -> dict[str, str]:
    """Return the variables that remote executors need to read Kafka, but for those that the user's file sets."""
    if master(settings).startswith("local"):
        return {}
    properties = own_properties(settings)
    return {
        f"spark.executorEnv.{name}": value
        for name, value in connections.java_environment(settings).items()
        if properties.keys().isdisjoint({f"spark.executorEnv.{name}", f"spark.kubernetes.executor.secretKeyRef.{name}"})
    }


def require_jars(settings: Settings | None = None) -> None:
    """Raise a UserError with the remedy when the jars have not been fetched."""
    if not CLASSES_JAR.exists():
        raise UserError(f"The jars are not in {JARS_DIR}", "Run `make setup`")
    on_servers = settings is not None and not catalog_properties.is_on_one_machine(settings)
    if on_servers and not any(CLUSTER_DIR.glob("*.jar")):
        raise UserError(f"The jars of a lake on servers are not in {CLUSTER_DIR}", "Run `make setup EXTRAS=cluster`")


def write_properties(settings: Settings, path: Path, more: Mapping[str, str] | None = None) -> Path:
    """Write the configuration of a Spark process to a 0600 file (a command line is public), and return its path."""
    lines = {**configuration(settings), **(more or {})}
    escaped = (f"{name}={value.translate(ESCAPED)}\n" for name, value in lines.items())
    return private_files.write(path, DEFAULTS.read_text() + "\n" + "".join(escaped))


def process_environment(settings: Settings, properties: Path = DEFAULTS) -> dict[str, str]:
    """Return the environment of a Spark process: conf/, the class archive, loopback if it has no other machine."""
    more = {}
    if not catalog_properties.is_on_one_machine(settings):
        # At the end of the class path: before Spark's jars it would make the class archive useless.
        more["SPARK_DIST_CLASSPATH"] = _before(f"{CLUSTER_DIR}/*", "SPARK_DIST_CLASSPATH", separator=":")
    if master(settings).startswith("local"):
        more["SPARK_LOCAL_IP"] = "127.0.0.1"
    return {
        **os.environ,
        "SPARK_HOME": str(SPARK_HOME),
        # Not conf/: it would be on the class path, and there is no archive for a class path with directories.
        "SPARK_CONF_DIR": str(SPARK_HOME / "conf"),
        "SPARK_SUBMIT_OPTS": _before(_java_options(settings), "SPARK_SUBMIT_OPTS"),
        "PYSPARK_SUBMIT_ARGS": _before(
            f"--properties-file {shlex.quote(str(properties))}", "PYSPARK_SUBMIT_ARGS", "pyspark-shell"
        ),
        **more,
    }


def _before(value: str, variable: str, default: str = "", separator: str = " ") -> str:
    """Return a variable of the caller, with `value` in front once."""
    current = os.environ.get(variable, default)
    return current if value in current else separator.join(filter(None, (value, current)))


def _java_options(settings: Settings) -> str:
    options = [f"-Dlog4j2.configurationFile=file:{LOGGING}"]
    if _is_noexec(JAVA_TMP):
        scratch = private_files.directory(settings.home / "tmp")
        if _is_noexec(scratch):
            which = f"Neither {JAVA_TMP} nor {scratch} allows execution, which native libraries of Java need"
            raise UserError(which, "Mount one of them without `noexec`, or set LAKEHOUSE_HOME to another directory")
        options.append(f"-Djava.io.tmpdir={scratch}")
    if CLASS_ARCHIVE.exists():
        # Without it a cold batch takes 36 % more CPU time (bench/README.md). An archive of other jars or another Java
        # does no harm, but the JVM would warn on stdout.
        options += [f"-XX:SharedArchiveFile={CLASS_ARCHIVE}", "-Xlog:cds=off", "-Xlog:cds+dynamic=off"]
    return " ".join(map(shlex.quote, options))


def _is_noexec(directory: Path) -> bool:
    return bool(os.statvfs(directory).f_flag & os.ST_NOEXEC)


def session(settings: Settings, app_name: str, log: BinaryIO | None = None) -> SparkSession:
    """Return a Spark session with the shared configuration; a UserError without a fitting Java or without jars.

    A JVM that is started for it logs to an open file, else to stderr.
    """
    java.executable()
    require_jars(settings)
    of_executors = _of_executors(settings)
    with tempfile.TemporaryDirectory(prefix="lakehouse-spark-") as directory:
        properties = write_properties(settings, Path(directory) / "spark.properties", of_executors)
        # Other children need no decrypted key.
        with changed_environment(process_environment(settings, properties) | connections.java_environment(settings)):
            gateway = SparkContext._gateway or launch_gateway(popen_kwargs={"stderr": log})  # type: ignore[no-untyped-call]
            SparkContext._ensure_initialized(gateway=gateway)
    # For a JVM that an earlier session started with other settings.
    builder = SparkSession.builder.appName(app_name)
    for key, value in {**configuration(settings), **of_executors}.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()
