"""How connections are secured: read from the environment and checked before anything connects."""

import ipaddress
import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from lakehouse.errors import UserError

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


@dataclass(frozen=True)
class TlsFiles:
    """Paths of PEM files, each empty if unused; without `ca` the system's authorities are trusted."""

    ca: str = ""
    certificate: str = ""
    key: str = ""
    key_password: str = field(default="", repr=False)


@dataclass(frozen=True)
class KafkaSecurity:
    """`mechanism`, `username` and `password` are empty unless the protocol starts with SASL."""

    protocol: str = "PLAINTEXT"
    mechanism: str = ""
    username: str = ""
    password: str = field(default="", repr=False)
    tls: TlsFiles = TlsFiles()


@dataclass(frozen=True)
class RegistrySecurity:
    """`user_info` is `user:password`; at most one of it and `bearer_token` is set."""

    user_info: str = field(default="", repr=False)
    bearer_token: str = field(default="", repr=False)
    tls: TlsFiles = TlsFiles()


@dataclass(frozen=True)
class ThriftSecurity:
    """Whether the Thrift server speaks TLS. A client needs `ca` at most, a server that is started here the rest."""

    is_on: bool = False
    files: TlsFiles = TlsFiles()


def kafka_security(env: Mapping[str, str]) -> KafkaSecurity:
    """Return how Kafka is connected to, from `KAFKA_*`.

    Raises:
        UserError: a variable is missing, malformed, or contradicts another.
    """
    protocol = _choice(env, "KAFKA_SECURITY_PROTOCOL", PROTOCOLS, default="PLAINTEXT")
    sasl = ("KAFKA_SASL_MECHANISM", "KAFKA_SASL_USERNAME", "KAFKA_SASL_PASSWORD")
    if not protocol.startswith("SASL"):
        _unset(env, sasl, f"KAFKA_SECURITY_PROTOCOL is {protocol}")
    elif missing := [name for name in sasl if not env.get(name)]:
        raise UserError(f"{missing[0]} is not set, but KAFKA_SECURITY_PROTOCOL is {protocol}", "Set it")
    if not protocol.endswith("SSL"):
        _unset(env, tls_names("KAFKA"), f"KAFKA_SECURITY_PROTOCOL is {protocol}")
    return KafkaSecurity(
        protocol=protocol,
        mechanism=_choice(env, "KAFKA_SASL_MECHANISM", MECHANISMS, default=""),
        username=env.get("KAFKA_SASL_USERNAME", ""),
        password=env.get("KAFKA_SASL_PASSWORD", ""),
        tls=_tls(env, "KAFKA"),
    )


def registry_security(env: Mapping[str, str]) -> RegistrySecurity:
    """Return how the schema registry is connected to, from `SCHEMA_REGISTRY_*`.

    Raises:
        UserError: a variable is malformed or contradicts another.
    """
    url = urlsplit(env.get("SCHEMA_REGISTRY_URL", ""))
    user_info = env.get("SCHEMA_REGISTRY_BASIC_AUTH_USER_INFO", "")
    bearer_token = env.get("SCHEMA_REGISTRY_BEARER_AUTH_TOKEN", "")
    if "@" in url.netloc:
        # The address stands in messages and logs.
        raise UserError("SCHEMA_REGISTRY_URL holds a user", "Move it to SCHEMA_REGISTRY_BASIC_AUTH_USER_INFO")
    if user_info and ":" not in user_info:
        raise UserError("SCHEMA_REGISTRY_BASIC_AUTH_USER_INFO has no colon", "Write it as user:password")
    if user_info and bearer_token:
        raise UserError(
            "SCHEMA_REGISTRY_BASIC_AUTH_USER_INFO and SCHEMA_REGISTRY_BEARER_AUTH_TOKEN are both set", "Unset one"
        )
    if url.scheme != "https":
        _unset(env, tls_names("SCHEMA_REGISTRY"), "SCHEMA_REGISTRY_URL does not start with https")
        for name in ("SCHEMA_REGISTRY_BASIC_AUTH_USER_INFO", "SCHEMA_REGISTRY_BEARER_AUTH_TOKEN"):
            require_secret_way("SCHEMA_REGISTRY_URL", url.geturl(), name if env.get(name) else "")
    return RegistrySecurity(user_info, bearer_token, _tls(env, "SCHEMA_REGISTRY"))


def thrift_security(env: Mapping[str, str]) -> ThriftSecurity:
    """Return how the Thrift server is connected to, and serves if it is started here, from `LAKEHOUSE_THRIFT_*`.

    Raises:
        UserError: a variable is malformed or contradicts another.
    """
    is_on = _choice(env, "LAKEHOUSE_THRIFT_TLS", ("true", "false"), default="false") == "true"
    if not is_on:
        _unset(env, tls_names("LAKEHOUSE_THRIFT"), "LAKEHOUSE_THRIFT_TLS is not true")
    return ThriftSecurity(is_on, _tls(env, "LAKEHOUSE_THRIFT"))


def require_secret_way(variable: str, url: str, secret: str) -> None:
    """Refuse to send a secret where others on the network can read it: by http to another machine.

    `variable` holds the URL; `secret` is the variable that holds what would be sent, empty if there is none.

    Raises:
        UserError: it would be sent in the clear.
    """
    parts = urlsplit(url)
    if secret and parts.scheme == "http" and not _is_loopback(parts.hostname or ""):
        raise UserError(f"{secret} would be sent in the clear, because {variable} starts with http:", "Use https")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _choice(env: Mapping[str, str], name: str, allowed: tuple[str, ...], default: str) -> str:
    value = env.get(name) or default
    if value not in (*allowed, default):
        raise UserError(f"{name} is '{value}'", f"Set it to one of {', '.join(allowed)}")
    return value


def _unset(env: Mapping[str, str], names: tuple[str, ...], reason: str) -> None:
    """Refuse variables that would have no effect: whoever sets them expects a safer connection."""
    for name in names:
        if env.get(name):
            raise UserError(f"{name} is set, but {reason}", "Unset the one, or change the other")


def tls_names(prefix: str) -> tuple[str, ...]:
    """Return the variables of CA, certificate, key and the key's password."""
    parts = ("CA_LOCATION", "CERTIFICATE_LOCATION", "KEY_LOCATION", "KEY_PASSWORD")
    return tuple(f"{prefix}_SSL_{part}" for part in parts)


def _tls(env: Mapping[str, str], prefix: str) -> TlsFiles:
    names = tls_names(prefix)
    ca_name, certificate_name, key_name, password_name = names
    ca, certificate, key, key_password = (env.get(name, "") for name in names)
    for name, path in ((ca_name, ca), (certificate_name, certificate), (key_name, key)):
        try:
            Path(path or os.devnull).read_bytes()
        except OSError:
            raise UserError(f"{name} names {path}, which cannot be read", "Give the path of a PEM file") from None
    if bool(certificate) != bool(key):
        present, absent = (certificate_name, key_name) if certificate else (key_name, certificate_name)
        raise UserError(f"{present} is set, but {absent} is not", "Set both or none")
    if key_password and not key:
        raise UserError(f"{password_name} is set, but {key_name} is not", "Set both or none")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if ca:
        try:
            context.load_verify_locations(ca)
        except ssl.SSLError:
            raise UserError(f"{ca_name} names {ca}, which holds no PEM certificate", "Give a PEM file") from None
    if key:
        encrypted = "ENCRYPTED" in Path(key).read_text(errors="replace")
        if encrypted != bool(key_password):
            raise UserError(
                f"{key_name} names {key}, which is {'' if encrypted else 'not '}encrypted",
                f"{'Set' if encrypted else 'Unset'} {password_name}",
            )
        try:
            context.load_cert_chain(certificate, key, key_password)
        except ssl.SSLError:
            raise UserError(
                f"The key in {key} cannot be read, or does not belong to the certificate in {certificate}",
                f"Check {key_name}, {certificate_name} and {password_name}",
            ) from None
    return TlsFiles(ca, certificate, key, key_password)
