"""Settings as the options of each client: librdkafka, Spark's Kafka source, the schema registry's client.

Spark shows a query's options in plans, its UI and event logs. So they hold no secret: they name where Kafka's Java
client finds it, a variable of the JVM's environment or the key's file.
"""

from pathlib import Path

from lakehouse.settings import Settings

JAAS_VARIABLE = "KAFKA_SASL_JAAS_CONFIG"
KEY_PASSWORD_VARIABLE = "KAFKA_SSL_KEY_PASSWORD"
PROVIDERS = "org.apache.kafka.common.config.provider"


def kafka_client(settings: Settings) -> dict[str, str | int]:
    """Return the options of a librdkafka client."""
    security = settings.kafka_security
    tls = security.tls
    options = {
        "bootstrap.servers": settings.kafka_bootstrap_servers,
        "security.protocol": security.protocol,
        "sasl.mechanism": security.mechanism,
        "sasl.username": security.username,
        "sasl.password": security.password,
        "ssl.ca.location": tls.ca,
        "ssl.certificate.location": tls.certificate,
        "ssl.key.location": tls.key,
        "ssl.key.password": tls.key_password,
    }
    # librdkafka writes every failed connection to stderr; the outcome is reported once, by whoever asked.
    return {"log_level": 0} | {name: value for name, value in options.items() if value}


def spark_source(settings: Settings) -> dict[str, str]:
    """Return the options of Spark's Kafka source, for a JVM started with `java_environment`."""
    security = settings.kafka_security
    tls = security.tls
    options = {
        "bootstrap.servers": settings.kafka_bootstrap_servers,
        "security.protocol": security.protocol,
        "config.providers": "env,file",
        "config.providers.env.class": f"{PROVIDERS}.EnvVarConfigProvider",
        "config.providers.file.class": f"{PROVIDERS}.DirectoryConfigProvider",
    }
    if security.mechanism:
        options |= {"sasl.mechanism": security.mechanism, "sasl.jaas.config": f"${{env:{JAAS_VARIABLE}}}"}
    if tls.ca:
        options |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": tls.ca}
    if tls.key:
        options |= {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.certificate.chain": _content(tls.certificate),
            "ssl.keystore.key": _content(tls.key),
        }
    if tls.key_password:
        options["ssl.key.password"] = f"${{env:{KEY_PASSWORD_VARIABLE}}}"
    return {f"kafka.{name}": value for name, value in options.items()}


def java_environment(settings: Settings) -> dict[str, str]:
    """Return the variables that the options of `spark_source` refer to."""
    security = settings.kafka_security
    variables = {}
    if security.mechanism:
        module = "plain.PlainLoginModule" if security.mechanism == "PLAIN" else "scram.ScramLoginModule"
        user, password = _quoted(security.username), _quoted(security.password)
        variables[JAAS_VARIABLE] = (
            f"org.apache.kafka.common.security.{module} required username={user} password={password};"
        )
    if security.tls.key_password:
        variables[KEY_PASSWORD_VARIABLE] = security.tls.key_password
    return variables


def registry_client(settings: Settings) -> dict[str, str]:
    """Return the options of the schema registry's client."""
    security = settings.registry_security
    tls = security.tls
    options = {
        "url": settings.schema_registry_url,
        "basic.auth.user.info": security.user_info,
        "ssl.ca.location": tls.ca,
        "ssl.certificate.location": tls.certificate,
        "ssl.key.location": tls.key,
        "ssl.key.password": tls.key_password,
    }
    if security.bearer_token:
        options |= {"bearer.auth.credentials.source": "STATIC_TOKEN", "bearer.auth.token": security.bearer_token}
    present = {name: value for name, value in options.items() if value}
    # The client asks for a logical cluster, which only Confluent Cloud has.
    return present | ({"bearer.auth.logical.cluster": ""} if security.bearer_token else {})


def to_check(prefix: str, failure: str) -> str:
    """Return the variables to check after a failed TLS handshake, by OpenSSL's words for it; empty if it was none.

    `prefix` is KAFKA or SCHEMA_REGISTRY.
    """
    words = failure.lower().replace("_", " ")
    if "certificate verify failed" in words:
        return f"{prefix}_SSL_CA_LOCATION"
    if " alert " in words:
        return f"{prefix}_SSL_CERTIFICATE_LOCATION and {prefix}_SSL_KEY_LOCATION"
    return ""


def _content(path: str) -> str:
    """Refer to what a file holds."""
    file = Path(path).absolute()
    return f"${{file:{file.parent}:{file.name}}}"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
