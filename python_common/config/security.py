"""Security settings of connections, checked before anything connects."""

import ipaddress
import os
import ssl
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Self
from urllib.parse import urlsplit

from pydantic import model_validator

from python_common.config.variables import Variables, variable
from python_common.errors import UserError

SASL = ("mechanism", "username", "password")
TLS = ("ca", "certificate", "key", "key_password")
TRUSTED = "PEM file of the authorities to trust; without it those of the system"


class Tls(Variables):
    """Paths of PEM files, each empty if unused; without `ca` the system's authorities are trusted."""

    if TYPE_CHECKING:
        # Each subclass declares their variables.
        ca: str
        certificate: str
        key: str
        key_password: str

    def refuse(self, fields: Iterable[str], reason: str) -> None:
        """Refuse settings without effect: a user who sets them expects a safer connection."""
        for field in fields:
            if getattr(self, field):
                raise UserError(f"{self.variable(field)} is set, but {reason}", "Unset the one, or change the other")

    def require_usable(self) -> None:
        """Raise a UserError if a file cannot be read, holds something else, or does not belong to the others."""
        for field, other in (("certificate", "key"), ("key", "certificate"), ("key_password", "key")):
            if getattr(self, field) and not getattr(self, other):
                raise UserError(f"{self.variable(field)} is set, but {self.variable(other)} is not", "Set both or none")
        ca, certificate, key, password = (self.variable(field) for field in TLS)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        try:
            if self.ca:
                context.load_verify_locations(self.ca)
        except OSError as error:
            raise UserError(
                f"{ca} names {self.ca}, which holds no PEM certificate ({error.strerror})", "Give a PEM file"
            ) from None
        try:
            is_encrypted = "ENCRYPTED" in Path(self.key or os.devnull).read_text(errors="replace")
            if is_encrypted != bool(self.key_password):
                raise UserError(
                    f"{key} names {self.key}, which is {'' if is_encrypted else 'not '}encrypted",
                    f"{'Set' if is_encrypted else 'Unset'} {password}",
                )
            if self.key:
                context.load_cert_chain(self.certificate, self.key, self.key_password)
        except OSError as error:
            raise UserError(
                f"{certificate} and {key} name {self.certificate} and {self.key}, which are no certificate with its key"
                f" ({error.strerror})",
                f"Check both files, and {password}",
            ) from None


class KafkaSecurity(Tls):
    """`mechanism`, `username` and `password` are empty unless the protocol starts with SASL."""

    protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = variable(
        "KAFKA_SECURITY_PROTOCOL", "how the brokers are spoken to", "PLAINTEXT"
    )
    mechanism: Literal["", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = variable(
        "KAFKA_SASL_MECHANISM", "with `SASL_*`: how the login is proved", ""
    )
    username: str = variable("KAFKA_SASL_USERNAME", "with `SASL_*`: who connects", "")
    password: str = variable("KAFKA_SASL_PASSWORD", "with `SASL_*`: the password", "", secret=True)
    ca: str = variable("KAFKA_SSL_CA_LOCATION", f"with `*SSL`: {TRUSTED}", "")
    certificate: str = variable("KAFKA_SSL_CERTIFICATE_LOCATION", "with `*SSL`: PEM file of a client certificate", "")
    key: str = variable("KAFKA_SSL_KEY_LOCATION", "with `*SSL`: PEM file of the certificate's key", "")
    key_password: str = variable("KAFKA_SSL_KEY_PASSWORD", "the password of an encrypted key", "", secret=True)

    @model_validator(mode="after")
    def _fits(self) -> Self:
        protocol = self.variable("protocol")
        if not self.protocol.startswith("SASL"):
            self.refuse(SASL, f"{protocol} is {self.protocol}")
        elif missing := [field for field in SASL if not getattr(self, field)]:
            raise UserError(f"{self.variable(missing[0])} is not set, but {protocol} is {self.protocol}", "Set it")
        if not self.protocol.endswith("SSL"):
            self.refuse(TLS, f"{protocol} is {self.protocol}")
        self.require_usable()
        return self


class RegistrySecurity(Tls):
    """`user_info` is `user:password`; at most one of it and `bearer_token` is set."""

    user_info: str = variable(
        "SCHEMA_REGISTRY_BASIC_AUTH_USER_INFO",
        "`user:password`; refused with an http URL, but on this machine",
        "",
        secret=True,
    )
    bearer_token: str = variable(
        "SCHEMA_REGISTRY_BEARER_AUTH_TOKEN", "a token instead of user and password", "", secret=True
    )
    ca: str = variable("SCHEMA_REGISTRY_SSL_CA_LOCATION", f"with an https URL: {TRUSTED}", "")
    certificate: str = variable(
        "SCHEMA_REGISTRY_SSL_CERTIFICATE_LOCATION", "with an https URL: PEM file of a client certificate", ""
    )
    key: str = variable("SCHEMA_REGISTRY_SSL_KEY_LOCATION", "with an https URL: PEM file of the certificate's key", "")
    key_password: str = variable(
        "SCHEMA_REGISTRY_SSL_KEY_PASSWORD", "the password of an encrypted key", "", secret=True
    )

    @model_validator(mode="after")
    def _fits(self) -> Self:
        user, token = self.variable("user_info"), self.variable("bearer_token")
        if self.user_info and ":" not in self.user_info:
            raise UserError(f"{user} has no colon", "Write it as user:password")
        if self.user_info and self.bearer_token:
            raise UserError(f"{user} and {token} are both set", "Unset one")
        return self

    def require_fit(self, url: str) -> None:
        """Raise a UserError if the registry's URL and what is set here do not go together."""
        if "@" in urlsplit(url).netloc:
            # The address is in messages and logs.
            raise UserError("SCHEMA_REGISTRY_URL holds a user", f"Move it to {self.variable('user_info')}")
        if urlsplit(url).scheme != "https":
            self.refuse(TLS, "SCHEMA_REGISTRY_URL does not start with https")
            for field in ("user_info", "bearer_token"):
                require_secret_way("SCHEMA_REGISTRY_URL", url, self.variable(field) if getattr(self, field) else "")
        self.require_usable()


class ThriftSecurity(Tls):
    """TLS of the Thrift server. A client needs `ca` at most, a server the rest."""

    tls: Literal["true", "false"] = variable(
        "LAKEHOUSE_THRIFT_TLS",
        "whether the Thrift server speaks TLS. Needed beyond loopback, where the password would be sent in the clear."
        " dbt-spark encrypts and checks no certificate; our commands check it",
        "false",
        read_by="dbt, weekly, export, erase, stack",
    )
    ca: str = variable(
        "LAKEHOUSE_THRIFT_SSL_CA_LOCATION", f"with TLS: {TRUSTED}", "", read_by="dbt, weekly, export, erase, stack"
    )
    certificate: str = variable(
        "LAKEHOUSE_THRIFT_SSL_CERTIFICATE_LOCATION",
        "with TLS, where the server is started: PEM file of its certificate",
        "",
        read_by="stack, thrift",
    )
    key: str = variable(
        "LAKEHOUSE_THRIFT_SSL_KEY_LOCATION", "PEM file of the server certificate's key", "", read_by="stack, thrift"
    )
    key_password: str = variable(
        "LAKEHOUSE_THRIFT_SSL_KEY_PASSWORD",
        "the password of an encrypted key",
        "",
        read_by="stack, thrift",
        secret=True,
    )

    @property
    def is_on(self) -> bool:
        """Whether the server speaks TLS."""
        return self.tls == "true"

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if not self.is_on:
            self.refuse(TLS, f"{self.variable('tls')} is not true")
        self.require_usable()
        return self


def require_secret_way(variable: str, url: str, secret: str) -> None:
    """Refuse to send a secret by http to another machine.

    `variable` names the URL, `secret` the variable of the secret, empty without one.
    """
    split = urlsplit(url)
    if secret and split.scheme == "http" and not is_loopback(split.hostname or ""):
        raise UserError(f"{secret} would be sent in the clear, because {variable} starts with http:", "Use https")


def is_loopback(host: str) -> bool:
    """Return whether an address is of this machine alone."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
