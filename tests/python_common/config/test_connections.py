"""Connections: what the variables mean to each client, which settings are refused, and where no secret may be."""

from pathlib import Path

import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient

from python_common.config import connections
from python_common.config.settings import Settings, from_environment
from python_common.errors import UserError
from tests.support.services.secured import Authority
from tests.support.variables import COMPLETE

SASL = {
    "KAFKA_SECURITY_PROTOCOL": "SASL_SSL",
    "KAFKA_SASL_MECHANISM": "SCRAM-SHA-512",
    "KAFKA_SASL_USERNAME": "ingester",
    "KAFKA_SASL_PASSWORD": 'a"b\\c',
}
RACK = {"KAFKA_CLIENT_RACK": "zone-a"}
REGISTRY = {"SCHEMA_REGISTRY_URL": "https://127.0.0.1:8081"}
ELSEWHERE = {"SCHEMA_REGISTRY_URL": "http://registry.example:8081"}
BASIC = {"SCHEMA_REGISTRY_BASIC_AUTH_USER_INFO": "reader:reg-secret"}
BEARER = {"SCHEMA_REGISTRY_BEARER_AUTH_TOKEN": "token-secret"}


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Paths by the end of the variable's name."""
    authority = Authority(tmp_path_factory.mktemp("tls") / "ca")
    certificate, key = authority.issue("client", "key-secret")
    return {
        "SSL_CA_LOCATION": str(authority.ca),
        "SSL_CERTIFICATE_LOCATION": str(certificate),
        "SSL_KEY_LOCATION": str(key),
        "SSL_KEY_PASSWORD": "key-secret",
    }


def settings(*overrides: dict[str, str]) -> Settings:
    variables = dict(COMPLETE)
    for part in overrides:
        variables |= part
    return from_environment(variables)


def named(prefix: str, variables: dict[str, str]) -> dict[str, str]:
    return {f"{prefix}_{name}": value for name, value in variables.items()}


def test_librdkafka_gets_every_variable(tls: dict[str, str]) -> None:
    options = connections.kafka_client(settings(SASL, named("KAFKA", tls), RACK))
    assert options == {
        "bootstrap.servers": "127.0.0.1:9092",
        "client.rack": "zone-a",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "ingester",
        "sasl.password": 'a"b\\c',
        "ssl.ca.location": tls["SSL_CA_LOCATION"],
        "ssl.certificate.location": tls["SSL_CERTIFICATE_LOCATION"],
        "ssl.key.location": tls["SSL_KEY_LOCATION"],
        "ssl.key.password": "key-secret",
        "log_level": 0,
    }
    AdminClient(options)
    Consumer({**options, "group.id": "none"}).close()


def test_spark_gets_references_instead_of_secrets(tls: dict[str, str]) -> None:
    secured = settings(SASL, named("KAFKA", tls), RACK)
    options = connections.spark_source(secured)
    assert {name: value for name, value in options.items() if not name.startswith("kafka.config.providers")} == {
        "kafka.bootstrap.servers": "127.0.0.1:9092",
        "kafka.client.rack": "zone-a",
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.jaas.config": "${env:KAFKA_SASL_JAAS_CONFIG}",
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.certificates": Path(tls["SSL_CA_LOCATION"]).read_text(),
        "kafka.ssl.keystore.type": "PEM",
        "kafka.ssl.keystore.certificate.chain": "${env:KAFKA_SSL_KEYSTORE_CERTIFICATE_CHAIN}",
        "kafka.ssl.keystore.key": "${env:KAFKA_SSL_KEYSTORE_KEY}",
    }
    variables = connections.java_environment(secured)
    assert variables.pop("KAFKA_SSL_KEYSTORE_KEY").startswith("-----BEGIN PRIVATE KEY-----\n")
    assert variables == {
        "KAFKA_SASL_JAAS_CONFIG": "org.apache.kafka.common.security.scram.ScramLoginModule required"
        ' username="ingester" password="a\\"b\\\\c";',
        "KAFKA_SSL_KEYSTORE_CERTIFICATE_CHAIN": Path(tls["SSL_CERTIFICATE_LOCATION"]).read_text(),
    }


def test_the_registry_client_gets_every_variable(tls: dict[str, str]) -> None:
    basic = settings(REGISTRY, named("SCHEMA_REGISTRY", tls), BASIC)
    assert connections.registry_client(basic) == {
        "url": "https://127.0.0.1:8081",
        "basic.auth.user.info": "reader:reg-secret",
        "ssl.ca.location": tls["SSL_CA_LOCATION"],
        "ssl.certificate.location": tls["SSL_CERTIFICATE_LOCATION"],
        "ssl.key.location": tls["SSL_KEY_LOCATION"],
        "ssl.key.password": "key-secret",
    }
    assert connections.registry_client(settings(REGISTRY, BEARER))["bearer.auth.token"] == "token-secret"


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]"])
def test_secrets_may_go_to_this_machine_without_tls(host: str) -> None:
    url = {"SCHEMA_REGISTRY_URL": f"http://{host}:8081"}
    assert settings(url, BASIC).schema_registry_url == url["SCHEMA_REGISTRY_URL"]


def test_the_settings_do_not_print_their_secrets(tls: dict[str, str]) -> None:
    secured = settings(SASL, {"KAFKA_SASL_PASSWORD": "scram-secret"}, named("KAFKA", tls), REGISTRY, BASIC)
    assert "KafkaSecurity(protocol='SASL_SSL'" in repr(secured)
    assert "secret" not in repr(secured) + repr(settings(BEARER))


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"KAFKA_SECURITY_PROTOCOL": "TLS"}, "KAFKA_SECURITY_PROTOCOL is 'TLS'. Set it to one of PLAINTEXT, SSL"),
        ({**SASL, "KAFKA_SASL_USERNAME": ""}, "KAFKA_SASL_USERNAME is not set, but KAFKA_SECURITY_PROTOCOL is SASL"),
        ({**SASL, "KAFKA_SECURITY_PROTOCOL": ""}, "KAFKA_SASL_MECHANISM is set, but KAFKA_SECURITY_PROTOCOL is PLAIN"),
        ({**SASL, "KAFKA_SSL_CA_LOCATION": "/no/ca.pem"}, r"KAFKA_SSL_CA_LOCATION names /no/ca.pem, .* \(No such file"),
        ({"KAFKA_SSL_CA_LOCATION": "/no/ca.pem"}, "KAFKA_SSL_CA_LOCATION is set, but KAFKA_SECURITY_PROTOCOL is PLAIN"),
        ({**SASL, "KAFKA_SSL_CERTIFICATE_LOCATION": __file__}, "but KAFKA_SSL_KEY_LOCATION is not. Set both or none"),
        ({**SASL, "KAFKA_SSL_KEY_PASSWORD": "x"}, "KAFKA_SSL_KEY_PASSWORD is set, but KAFKA_SSL_KEY_LOCATION is not"),
        ({**SASL, "KAFKA_SSL_CA_LOCATION": __file__}, "KAFKA_SSL_CA_LOCATION names .*, which holds no PEM certificate"),
        ({"SCHEMA_REGISTRY_URL": "https://u:top-secret@127.0.0.1"}, "SCHEMA_REGISTRY_URL holds a user"),
        ({"SCHEMA_REGISTRY_SSL_CA_LOCATION": "/ca.pem"}, "SCHEMA_REGISTRY_URL does not start with https"),
        ({**ELSEWHERE, **BASIC}, "SCHEMA_REGISTRY_BASIC_AUTH_USER_INFO would be sent in the clear"),
        ({**ELSEWHERE, **BEARER}, "SCHEMA_REGISTRY_BEARER_AUTH_TOKEN would .* SCHEMA_REGISTRY_URL .* Use https"),
        ({"LAKEHOUSE_THRIFT_SSL_CA_LOCATION": "/ca.pem"}, "CA_LOCATION is set, but LAKEHOUSE_THRIFT_TLS is not true"),
        ({"SCHEMA_REGISTRY_BASIC_AUTH_USER_INFO": "top-secret"}, "SCHEMA_REGISTRY_BASIC_AUTH_USER_INFO has no colon"),
        ({**BASIC, **BEARER}, "_BASIC_AUTH_USER_INFO and SCHEMA_REGISTRY_BEARER_AUTH_TOKEN are both set"),
    ],
)
def test_a_malformed_or_contradicting_variable_is_named(variables: dict[str, str], words: str) -> None:
    with pytest.raises(UserError, match=words) as caught:
        settings(variables)
    assert "secret" not in str(caught.value)


def test_an_unusable_key_is_named_before_anything_connects(tls: dict[str, str]) -> None:
    with pytest.raises(UserError, match=r"KAFKA_SSL_KEY_LOCATION names .* is encrypted. Set KAFKA_SSL_KEY_PASSWORD"):
        settings(SASL, named("KAFKA", {**tls, "SSL_KEY_PASSWORD": ""}))
    with pytest.raises(UserError, match=r"no certificate with its key .*Check both files, and KAFKA_SSL_KEY_PASSWORD"):
        settings(SASL, named("KAFKA", {**tls, "SSL_KEY_PASSWORD": "wrong"}))
    with pytest.raises(UserError, match=r"KAFKA_SSL_KEY_LOCATION names .* is not encrypted. Unset KAFKA_SSL_KEY"):
        settings(SASL, named("KAFKA", {**tls, "SSL_KEY_LOCATION": tls["SSL_CA_LOCATION"]}))
    with pytest.raises(UserError, match=r"KAFKA_SSL_KEY_LOCATION name .* no certificate with its key"):
        settings(SASL, named("KAFKA", {**tls, "SSL_CERTIFICATE_LOCATION": tls["SSL_CA_LOCATION"]}))
