"""The Spark Thrift server, by which dbt reaches Spark, behind a password.

Its clients can read files as the server's user, the masking key among them, so even local ones need the password.
"""

import os
import secrets
import shutil
from pathlib import Path
from typing import NoReturn, cast

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import pkcs12
from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12PrivateKeyTypes

from python_common import private_files
from python_common.catalog.catalog import load_catalog
from python_common.config.security import ThriftSecurity, is_loopback
from python_common.config.settings import Settings
from python_common.errors import UserError
from python_common.process import Service
from python_common.spark import java, spark_conf, thrift

MAIN_CLASS = "org.apache.spark.sql.hive.thriftserver.HiveThriftServer2"


def service(directory: Path, settings: Settings) -> Service:
    """Return the Thrift server for a catalog and warehouse."""
    return Service(
        name="thrift",
        directory=directory,
        command=lambda: _prepare(directory, settings),
        ports={"LAKEHOUSE_THRIFT_PORT": settings.thrift_port},
        answers=lambda: _answers(settings),
        env=lambda: _environment(directory, settings),
    )


def exec_server(settings: Settings) -> NoReturn:
    """Replace this process by the Thrift server, for systemd or a container; a UserError if it cannot start."""
    if not settings.thrift_password:
        raise UserError("The Thrift server has no password", "Set LAKEHOUSE_THRIFT_PASSWORD")
    server = service(private_files.directory(settings.home / "thrift"), settings)
    # A running server needs the files that are replaced here.
    server.require_ports()
    command = server.command()
    os.chdir(server.directory)
    os.execvpe(command[0], command, {**os.environ, **server.env()})  # noqa: S606


def _environment(directory: Path, settings: Settings) -> dict[str, str]:
    environment = spark_conf.process_environment(settings)
    environment["SPARK_SUBMIT_OPTS"] += f" -Dlakehouse.thrift.password.file={directory / 'password'}"
    # Each session leaves a directory there.
    environment["SPARK_SUBMIT_OPTS"] += f" -Djava.io.tmpdir={directory / 'tmp'}"
    return environment


def _prepare(directory: Path, settings: Settings) -> list[str]:
    java.executable()
    spark_conf.require_jars(settings)
    bind = settings.thrift_host
    if not is_loopback(bind) and not settings.thrift_security.is_on:
        raise UserError(
            f"The Thrift server would listen on {bind} without TLS, and its password would be sent in the clear",
            "Set LAKEHOUSE_THRIFT_TLS to true and give it a certificate, or set LAKEHOUSE_THRIFT_HOST to 127.0.0.1",
        )
    shutil.rmtree(directory / "tmp", ignore_errors=True)
    (directory / "tmp").mkdir(mode=0o700)
    private_files.write(directory / "password", settings.thrift_password)
    # Spark opens every session in lake.default and refuses it when the namespace is missing.
    load_catalog(settings, create=True).create_namespace_if_not_exists("default")

    configuration = {
        "spark.hadoop.hive.server2.authentication": "CUSTOM",
        "spark.hadoop.hive.server2.thrift.bind.host": settings.thrift_host,
        "spark.hadoop.hive.server2.thrift.port": str(settings.thrift_port),
        **_tls(directory, settings.thrift_security),
    }
    submit = str(spark_conf.SPARK_HOME / "bin" / "spark-submit")
    properties = spark_conf.write_properties(settings, directory / "spark.properties", configuration)
    return [submit, "--properties-file", str(properties), "--class", MAIN_CLASS, "spark-internal"]


def _tls(directory: Path, security: ThriftSecurity) -> dict[str, str]:
    """Write the key store of a server with TLS, and return its options."""
    if not security.is_on:
        return {}
    if not security.key:
        raise UserError(
            "LAKEHOUSE_THRIFT_TLS is true, but the server that starts here has no certificate",
            "Set LAKEHOUSE_THRIFT_SSL_CERTIFICATE_LOCATION and LAKEHOUSE_THRIFT_SSL_KEY_LOCATION",
        )
    key = serialization.load_pem_private_key(Path(security.key).read_bytes(), security.key_password.encode() or None)
    certificate, *chain = x509.load_pem_x509_certificates(Path(security.certificate).read_bytes())
    password = secrets.token_urlsafe(32)
    store = pkcs12.serialize_key_and_certificates(
        b"thrift",
        cast("PKCS12PrivateKeyTypes", key),
        certificate,
        chain,
        serialization.BestAvailableEncryption(password.encode()),
    )
    path = directory / "thrift.p12"
    private_files.write(path, store)
    return {
        "spark.hadoop.hive.server2.use.SSL": "true",
        "spark.hadoop.hive.server2.keystore.path": str(path),
        "spark.hadoop.hive.server2.keystore.password": password,
    }


def _answers(settings: Settings) -> bool:
    try:
        with thrift.connect(settings) as cursor:
            return thrift.rows(cursor, "select 1") == [(1,)]
    except thrift.SessionError:
        raise
    except UserError:
        return False
