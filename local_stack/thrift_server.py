"""The Spark Thrift server: dbt's way to Spark, behind a password.

Whoever may run SQL here can read files as this server's user, the masking key among them; so it lets in nobody without
the password, not even from this machine.
"""

import os
import shutil
import socket
import subprocess
from pathlib import Path

from pyspark.java_gateway import launch_gateway

from lakehouse import java, spark, thrift
from lakehouse.catalog import load_catalog
from lakehouse.errors import UserError
from lakehouse.settings import Settings
from local_stack.process import Service

AUTHENTICATOR = Path(__file__).parent / "thrift_auth" / "PasswordFileAuthenticator.java"
MAIN_CLASS = "org.apache.spark.sql.hive.thriftserver.HiveThriftServer2"


def service(directory: Path, settings: Settings) -> Service:
    """Return the Thrift server for a catalog and warehouse."""
    return Service(
        name="thrift",
        directory=directory,
        command=lambda: _prepare(directory, settings),
        ports={"LAKEHOUSE_THRIFT_PORT": settings.thrift_port},
        answers=lambda: _answers(settings),
        env=spark.process_environment() | {"SPARK_SUBMIT_OPTS": _java_options(directory)},
    )


def _java_options(directory: Path) -> str:
    """Return what only system properties can say, after the caller's own options."""
    return " ".join(
        [
            os.environ.get("SPARK_SUBMIT_OPTS", ""),
            # Hive reads the class name from the system property alone.
            f"-Dhive.server2.custom.authentication.class={AUTHENTICATOR.stem}",
            f"-Dlakehouse.thrift.password.file={directory / 'password'}",
            # Each session leaves a directory there.
            f"-Djava.io.tmpdir={directory / 'tmp'}",
        ]
    )


def _prepare(directory: Path, settings: Settings) -> list[str]:
    java.executable()
    shutil.rmtree(directory / "tmp", ignore_errors=True)
    (directory / "tmp").mkdir()
    password_file = directory / "password"
    password_file.touch(mode=0o600)
    password_file.write_text(settings.thrift_password)
    classes = directory / "classes"
    if not (classes / f"{AUTHENTICATOR.stem}.class").exists():
        _compile(AUTHENTICATOR, classes)
    # Spark opens every session in lake.default and refuses it when the namespace is missing.
    load_catalog(settings, create=True).create_namespace_if_not_exists("default")

    configuration = spark.configuration(settings)
    configuration["spark.driver.extraClassPath"] += f":{classes}"
    configuration |= {
        "spark.hadoop.hive.server2.authentication": "CUSTOM",
        "spark.hadoop.hive.server2.thrift.bind.host": settings.thrift_host,
        "spark.hadoop.hive.server2.thrift.port": str(settings.thrift_port),
    }
    return [
        str(spark.SPARK_HOME / "bin" / "spark-submit"),
        *(word for key, value in configuration.items() for word in ("--conf", f"{key}={value}")),
        *("--class", MAIN_CLASS),
        "spark-internal",
    ]


def _compile(source: Path, classes: Path) -> None:
    """Compile with Janino, which ships with Spark: a JRE without a compiler is enough."""
    classes.mkdir(parents=True, exist_ok=True)
    gateway = launch_gateway(popen_kwargs={"env": spark.process_environment(), "stderr": subprocess.DEVNULL})
    try:
        jvm = gateway.jvm
        compiler = jvm.org.codehaus.janino.CompilerFactory().newCompiler()
        compiler.setDestinationDirectory(jvm.java.io.File(str(classes)), False)
        jars = sorted((spark.SPARK_HOME / "jars").glob("*.jar"))
        class_path = gateway.new_array(jvm.java.io.File, len(jars))
        for position, jar in enumerate(jars):
            class_path[position] = jvm.java.io.File(str(jar))
        compiler.setClassPath(class_path)
        sources = gateway.new_array(jvm.java.io.File, 1)
        sources[0] = jvm.java.io.File(str(source))
        compiler.compile(sources)
    finally:
        gateway.shutdown()


def _answers(settings: Settings) -> bool:
    # A socket first: PyHive logs a stack trace for every refused connection.
    try:
        socket.create_connection((settings.thrift_host, settings.thrift_port), timeout=1).close()
    except OSError:
        return False
    try:
        with thrift.connect(settings) as cursor:
            return thrift.rows(cursor, "select 1") == [(1,)]
    except UserError:
        return False
