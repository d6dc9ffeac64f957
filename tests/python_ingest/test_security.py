"""Secured services for real: SCRAM, TLS and client certificates end to end, refusals in a line, secrets nowhere."""

import base64
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import psutil
import pytest
from pyspark.sql import SparkSession

from python_common.config.settings import Settings, from_environment
from python_common.errors import UserError
from python_ingest.declare.topics import Declaration
from python_ingest.kafka.admin import Broker
from python_ingest.kafka.registry import Registry
from python_ingest.verify.compare import verify_topic
from tests.support.commands import LAKEHOUSE
from tests.support.services.secured import (
    PASSWORD,
    USER,
    Authority,
    grant,
    secured_broker,
    secured_registry,
)
from tests.support.topic_fixture import TopicFixture, record

pytestmark = pytest.mark.slow

USER_INFO = "reader:registry-secret-9b1d"
TOKEN = "token-secret-c04e"
KEY_PASSWORD = "key-secret-55ab"
# Longer than a test may take: a client that is turned away must not wait.
LONG = 3600
NO_CERTIFICATE = dict.fromkeys(
    ("KAFKA_SSL_CERTIFICATE_LOCATION", "KAFKA_SSL_KEY_LOCATION", "KAFKA_SSL_KEY_PASSWORD"), ""
)
NO_REGISTRY_CERTIFICATE = dict.fromkeys(
    ("SCHEMA_REGISTRY_SSL_CERTIFICATE_LOCATION", "SCHEMA_REGISTRY_SSL_KEY_LOCATION"), ""
)


@dataclass(frozen=True)
class Secured:
    """The variables of every way in, and what of them is secret."""

    ways: dict[str, dict[str, str]]
    other_ca: str
    secrets: tuple[str, ...]

    def settings(self, way: str, changes: Mapping[str, str] = MappingProxyType({})) -> Settings:
        return from_environment({**os.environ, **self.ways[way], **changes})


def tls(service: str, ca: Path, certificate: Path, key: Path) -> dict[str, str]:
    """Return the variables of a client certificate of Kafka or the registry."""
    files = {"CA": ca, "CERTIFICATE": certificate, "KEY": key}
    return {f"{service}_SSL_{name}_LOCATION": str(file) for name, file in files.items()}


@pytest.fixture(scope="module")
def secured(stack: Settings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    directory = tmp_path_factory.mktemp("secured")
    authority, other = Authority(directory / "ca"), Authority(directory / "other")
    certificate, key = authority.issue("client")
    other_certificate, encrypted_key = authority.issue("other_client", KEY_PASSWORD)
    basic_token = base64.b64encode(USER_INFO.encode()).decode()
    upstream = stack.schema_registry_url
    basic_registry = secured_registry(upstream, authority, authorization=f"Basic {basic_token}", mutual=False)
    bearer_registry = secured_registry(upstream, authority, authorization=f"Bearer {TOKEN}", mutual=True)
    running_broker = secured_broker(directory / "kafka", authority, admin="other_client")
    scram = {
        "KAFKA_SASL_MECHANISM": "SCRAM-SHA-512",
        "KAFKA_SASL_USERNAME": USER,
        "KAFKA_SASL_PASSWORD": PASSWORD,
    }
    with running_broker as broker, basic_registry as basic, bearer_registry as bearer:
        ways = {
            "sasl_ssl": {
                **scram,
                **tls("KAFKA", authority.ca, certificate, key),
                "KAFKA_BOOTSTRAP_SERVERS": broker.sasl_ssl,
                "KAFKA_SECURITY_PROTOCOL": "SASL_SSL",
            },
            "sasl_plaintext": {
                **scram,
                "KAFKA_BOOTSTRAP_SERVERS": broker.sasl_plaintext,
                "KAFKA_SECURITY_PROTOCOL": "SASL_PLAINTEXT",
            },
            "mutual_tls": {
                **tls("KAFKA", authority.ca, other_certificate, encrypted_key),
                "KAFKA_BOOTSTRAP_SERVERS": broker.mutual_tls,
                "KAFKA_SECURITY_PROTOCOL": "SSL",
                "KAFKA_SSL_KEY_PASSWORD": KEY_PASSWORD,
            },
            "basic": {
                "SCHEMA_REGISTRY_SSL_CA_LOCATION": str(authority.ca),
                "SCHEMA_REGISTRY_URL": basic,
                "SCHEMA_REGISTRY_BASIC_AUTH_USER_INFO": USER_INFO,
            },
            "bearer": {
                **tls("SCHEMA_REGISTRY", authority.ca, certificate, key),
                "SCHEMA_REGISTRY_URL": bearer,
                "SCHEMA_REGISTRY_BEARER_AUTH_TOKEN": TOKEN,
            },
        }
        keys = (file.read_text().splitlines()[1] for file in (key, encrypted_key))
        secrets = (PASSWORD.split()[0], USER_INFO.split(":")[1], basic_token, TOKEN, KEY_PASSWORD, *keys)
        yield Secured(ways, str(other.ca), secrets)


@pytest.fixture
def secured_topic(secured: Secured, spark: SparkSession, declaration: Declaration) -> TopicFixture:
    topic = TopicFixture(secured.settings("mutual_tls"), spark, declaration)
    topic.make_topic()
    grant(topic.admin, "test.")
    schema_id = topic.register(record("sale", id="int"))
    for index in range(20):
        topic.produce(topic.encode(schema_id, {"id": index}), partition=index % 3, key=b"k")
    topic.flush()
    return topic


def ingest_and_verify(topic: TopicFixture, models_dir: Path, env: dict[str, str]) -> list[str]:
    """Run both commands as a user does; return their output and every command line they started."""
    seen = []
    for command in ("run", "verify"):
        process = subprocess.Popen(
            [LAKEHOUSE, "ingest", command, topic.name, "--models", str(models_dir)],
            env={**os.environ, **env},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        while process.poll() is None:
            seen += command_lines(process.pid)
            time.sleep(0.2)
        output, errors = process.communicate()
        assert process.returncode == 0, output + errors
        # What stderr has is what it logs: a time and a level. A warning, and whatever the JVM prints, is none of it.
        assert all(re.match(r"\S+Z info: ", line) for line in errors.splitlines()), errors
        seen += [errors, output]
    assert seen[-1] == f"{topic.name}: 20 records compared: all exactly once\n"
    assert any("org.apache.spark.deploy.SparkSubmit" in line for line in seen)
    return seen


def command_lines(pid: int) -> list[str]:
    lines = []
    for process in psutil.Process(pid).children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            lines.append(" ".join(process.cmdline()))
    return lines


def files_with(text: str, *directories: Path) -> set[str]:
    files = [file for directory in directories for file in directory.rglob("*") if file.is_file()]
    return {file.name for file in files if text.encode() in file.read_bytes()}


def test_a_run_over_scram_and_tls_leaves_no_secret_behind(
    secured: Secured, secured_topic: TopicFixture, models_dir: Path, tmp_path: Path
) -> None:
    home, events = tmp_path / "home", tmp_path / "events"
    events.mkdir()
    spark = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": str(events),
        "spark.eventLog.compress": "false",
        "spark.eventLog.rolling.enabled": "false",
        "spark.log.level": "DEBUG",
    }
    arguments = " ".join(f"--conf {name}={value}" for name, value in spark.items())
    env = {"LAKEHOUSE_HOME": str(home), "PYSPARK_SUBMIT_ARGS": f"{arguments} pyspark-shell"}
    seen = ingest_and_verify(secured_topic, models_dir, {**secured.ways["sasl_ssl"], **secured.ways["basic"], **env})
    directories = (home, events, secured_topic.directory)
    # The search finds what is there, in a log with connections and an event log with queries.
    assert files_with("KAFKA_SASL_JAAS_CONFIG", *directories) == {"spark.log"}
    assert len(files_with(secured_topic.declaration.identifier, events)) == 1
    for secret in secured.secrets:
        assert files_with(secret, *directories) == set()
        assert not any(secret in line for line in seen)


def test_a_run_over_client_certificates_and_a_bearer_token(
    secured: Secured, secured_topic: TopicFixture, models_dir: Path
) -> None:
    ingest_and_verify(secured_topic, models_dir, {**secured.ways["mutual_tls"], **secured.ways["bearer"]})
    with pytest.raises(UserError, match="Authentication with Kafka"):
        verify_topic(secured.settings("mutual_tls", NO_CERTIFICATE), secured_topic.declaration, LONG)


ONE_SESSION = """
import os, psutil
from python_common.config.settings import from_environment
from python_common.spark.spark_conf import session
spark = session(from_environment(), "key")
[java] = [process for process in psutil.Process().children(recursive=True) if "java" in process.name()]
print("KAFKA_SSL_KEYSTORE_KEY" in java.environ(), "KAFKA_SSL_KEYSTORE_KEY" in os.environ, end=" ")
print(from_environment().catalog_uri in " ".join(java.cmdline()))
spark.stop()
"""


def test_a_secret_is_in_a_command_line_or_the_environment(secured: Secured) -> None:
    env = {**os.environ, **secured.ways["mutual_tls"]}
    done = subprocess.run([sys.executable, "-c", ONE_SESSION], env=env, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines()[-1:] == ["True False False"], done.stderr[-500:]


def test_scram_works_without_tls_too(secured: Secured) -> None:
    Broker(secured.settings("sasl_plaintext"), 30).check()


SASL = "KAFKA_SASL_USERNAME, KAFKA_SASL_PASSWORD and KAFKA_SASL_MECHANISM"


@pytest.mark.parametrize(
    ("way", "wrong", "words"),
    [
        ("sasl_ssl", {"KAFKA_SASL_PASSWORD": "wrong-secret"}, f"Kafka at .* failed. Check {SASL}"),
        ("sasl_ssl", {"KAFKA_SASL_MECHANISM": "PLAIN"}, f"Kafka at .* failed. Check {SASL}"),
        ("sasl_ssl", {"KAFKA_SSL_CA_LOCATION": "other"}, "Kafka at .* failed. Check KAFKA_SSL_CA_LOCATION"),
        ("sasl_ssl", {"KAFKA_SSL_CA_LOCATION": ""}, "Kafka at .* failed. Check KAFKA_SSL_CA_LOCATION"),
        ("mutual_tls", NO_CERTIFICATE, "Check KAFKA_SSL_CERTIFICATE_LOCATION and KAFKA_SSL_KEY_LOCATION"),
        ("basic", {"SCHEMA_REGISTRY_BASIC_AUTH_USER_INFO": "reader:wrong"}, "answered 401.*SCHEMA_REGISTRY_BASIC_AUTH"),
        ("bearer", {"SCHEMA_REGISTRY_BEARER_AUTH_TOKEN": "wrong"}, "answered 401.*SCHEMA_REGISTRY_BEARER_AUTH_TOKEN"),
        ("basic", {"SCHEMA_REGISTRY_SSL_CA_LOCATION": "other"}, "failed. Check SCHEMA_REGISTRY_SSL_CA_LOCATION"),
        ("bearer", NO_REGISTRY_CERTIFICATE, "failed. Check SCHEMA_REGISTRY_SSL_CERTIFICATE_LOCATION and"),
    ],
)
def test_a_service_that_turns_us_away_is_not_waited_for(
    secured: Secured, way: str, wrong: dict[str, str], words: str
) -> None:
    wrong = {name: secured.other_ca if value == "other" else value for name, value in wrong.items()}
    settings = secured.settings(way, wrong)
    with pytest.raises(UserError, match=words):
        if way in ("basic", "bearer"):
            Registry(settings, LONG).schemas([1])
        else:
            Broker(settings, LONG).check()
