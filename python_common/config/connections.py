"""Settings as the options of each client: librdkafka, Spark's Kafka source, the schema registry's client.

Spark shows a query's options in plans, its UI and logs. So they hold no secret: each secret is a reference, which
Kafka's Java client resolves, to a variable in the environment of the JVM.
"""

from pathlib import Path

from cryptography.hazmat.primitives import serialization

from python_common.config.settings import Settings


def kafka_client(settings: Settings) -> dict[str, str | int | float | bool]:
    """Return the options of a librdkafka client."""
    security = settings.kafka_security
    options = {
        "bootstrap.servers": settings.kafka_bootstrap_servers,
        "client.rack": settings.kafka_client_rack,
        "security.protocol": security.protocol,
        "sasl.mechanism": security.mechanism,
        "sasl.username": security.username,
        "sasl.password": security.password,
        "ssl.ca.location": security.ca,
        "ssl.certificate.location": security.certificate,
        "ssl.key.location": security.key,
        "ssl.key.password": security.key_password,
    }
    # librdkafka writes every failed connection to stderr; the caller reports the outcome once.
    return {"log_level": 0, **{name: value for name, value in options.items() if value}}


def spark_source(settings: Settings) -> dict[str, str]:
    """Return the options of Spark's Kafka source, for a JVM started with `java_environment`."""
    security = settings.kafka_security
    options = {
        "bootstrap.servers": settings.kafka_bootstrap_servers,
        "client.rack": settings.kafka_client_rack,
        "security.protocol": security.protocol,
        "sasl.mechanism": security.mechanism,
        "ssl.truststore.type": "PEM" if security.ca else "",
        # The text, and not the name of a file that every executor would have to have.
        "ssl.truststore.certificates": Path(security.ca).read_text() if security.ca else "",
        "ssl.keystore.type": "PEM" if security.key else "",
        **{name: f"${{env:{_variable(name)}}}" for name in _hidden_options(settings)},
        "config.providers": "env",
        "config.providers.env.class": "org.apache.kafka.common.config.provider.EnvVarConfigProvider",
    }
    return {f"kafka.{name}": value for name, value in options.items() if value}


def java_environment(settings: Settings) -> dict[str, str]:
    """Return the variables that the options of `spark_source` refer to."""
    return {_variable(name): value for name, value in _hidden_options(settings).items()}


def _hidden_options(settings: Settings) -> dict[str, str]:
    security = settings.kafka_security
    options = {}
    if security.mechanism:
        module = "plain.PlainLoginModule" if security.mechanism == "PLAIN" else "scram.ScramLoginModule"
        user, password = _quoted(security.username), _quoted(security.password)
        options["sasl.jaas.config"] = (
            f"org.apache.kafka.common.security.{module} required username={user} password={password};"
        )
    if security.key:
        # Java reads no key but a plain PKCS#8 one: of OpenSSL's encryption it lacks what is usual today.
        passphrase = security.key_password.encode() or None
        key = serialization.load_pem_private_key(Path(security.key).read_bytes(), passphrase)
        pkcs8, plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        options["ssl.keystore.key"] = key.private_bytes(serialization.Encoding.PEM, pkcs8, plain).decode()
        options["ssl.keystore.certificate.chain"] = Path(security.certificate).read_text()
    return options


def _variable(option: str) -> str:
    return f"KAFKA_{option.upper().replace('.', '_')}"


def registry_client(settings: Settings) -> dict[str, str]:
    """Return the options of the schema registry's client."""
    security = settings.registry_security
    options = {
        "url": settings.schema_registry_url,
        "basic.auth.user.info": security.user_info,
        "ssl.ca.location": security.ca,
        "ssl.certificate.location": security.certificate,
        "ssl.key.location": security.key,
        "ssl.key.password": security.key_password,
    }
    present = {name: value for name, value in options.items() if value}
    if security.bearer_token:
        present |= {"bearer.auth.credentials.source": "STATIC_TOKEN", "bearer.auth.token": security.bearer_token}
        # The client asks for a logical cluster, which only Confluent Cloud has.
        present["bearer.auth.logical.cluster"] = ""
    return present


def tls_settings_hint(prefix: str, failure: str) -> str:
    """Return the variables to check after a failed TLS handshake, by OpenSSL's message; empty for another failure.

    `prefix` is KAFKA or SCHEMA_REGISTRY.
    """
    words = failure.lower().replace("_", " ")
    if "certificate verify failed" in words:
        return f"{prefix}_SSL_CA_LOCATION"
    if " alert " in words:
        return f"{prefix}_SSL_CERTIFICATE_LOCATION and {prefix}_SSL_KEY_LOCATION"
    return ""


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
