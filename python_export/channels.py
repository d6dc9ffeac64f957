"""How readers are told: an SMTP server, a webhook, both or neither, as the environment says."""

import smtplib
import ssl
from collections.abc import Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field
from email.message import EmailMessage
from email.utils import parseaddr
from typing import Any
from urllib.parse import urlsplit

import httpx2

from lakehouse.errors import UserError

TIMEOUT = 20.0
DEFAULT_PORTS = {"starttls": 587, "tls": 465, "none": 25}
# What a mail server says of one mail; it may take the next.
OF_ONE_MAIL = (
    smtplib.SMTPSenderRefused,
    smtplib.SMTPRecipientsRefused,
    smtplib.SMTPDataError,
    smtplib.SMTPNotSupportedError,
)


class ChannelDownError(UserError):
    """A channel does not answer, or does not let this client in: it takes no other message either."""


@dataclass(frozen=True)
class Smtp:
    """A mail server and the envelope; `tls` is starttls, tls or none, `ca` a PEM file or empty for the system's."""

    host: str
    port: int
    tls: str
    user: str
    password: str = field(repr=False)
    sender: str
    recipients: tuple[str, ...]
    ca: str


@dataclass(frozen=True)
class Webhook:
    """A URL that takes JSON; the URL itself is often a secret."""

    url: str = field(repr=False)
    token: str = field(repr=False)

    @property
    def place(self) -> str:
        """Scheme and host, which messages may show."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.hostname}"


@dataclass(frozen=True)
class Channels:
    """The configured channels."""

    smtp: Smtp | None = None
    webhook: Webhook | None = None


def from_environment(env: Mapping[str, str]) -> Channels:
    """Return the channels of `LAKEHOUSE_SMTP_*` and `LAKEHOUSE_WEBHOOK_*`.

    Raises:
        UserError: a variable is missing, malformed, or contradicts another.
    """
    smtp = _smtp(env) if env.get("LAKEHOUSE_SMTP_HOST") else None
    url, token = env.get("LAKEHOUSE_WEBHOOK_URL", ""), env.get("LAKEHOUSE_WEBHOOK_TOKEN", "")
    if url and not _is_web_address(url):
        raise UserError("LAKEHOUSE_WEBHOOK_URL is not a URL", "Write it as https://host/path")
    _require_ascii(env, "LAKEHOUSE_WEBHOOK_TOKEN")
    return Channels(smtp, Webhook(url, token) if url else None)


def send(smtp: Smtp, message: EmailMessage) -> UserError | None:
    """Hand a mail to the server, and return what to say if it refused some of the recipients: the others have it.

    Raises:
        UserError: the server did not take it for any recipient.
        ChannelDownError: it does not answer, or refused the login.
    """
    address = f"{smtp.host}:{smtp.port}"
    try:
        tls = ssl.create_default_context(cafile=smtp.ca or None)
        if smtp.tls == "tls":
            server = smtplib.SMTP_SSL(smtp.host, smtp.port, timeout=TIMEOUT, context=tls)
        else:
            server = smtplib.SMTP(smtp.host, smtp.port, timeout=TIMEOUT)
        # Closed, not left by QUIT: after a failed handshake that would wait for an answer.
        with closing(server):
            if smtp.tls == "starttls":
                server.starttls(context=tls)
            if smtp.user:
                server.login(smtp.user, smtp.password)
            refused = server.send_message(message)
            with suppress(smtplib.SMTPException, OSError):
                server.quit()
    except smtplib.SMTPException as error:
        # What a server says may quote the mail; its code does not.
        code = getattr(error, "smtp_code", None)
        kind = UserError if isinstance(error, OF_ONE_MAIL) else ChannelDownError
        raise kind(
            f"The mail server at {address} did not take the mail ({type(error).__name__}{f' {code}' if code else ''})",
            "Check LAKEHOUSE_SMTP_TLS, _USER, _PASSWORD, _FROM and _TO",
        ) from None
    except OSError as error:
        raise ChannelDownError(
            f"The mail server at {address} does not answer ({error.strerror or type(error).__name__})",
            "Check LAKEHOUSE_SMTP_HOST, _PORT, _TLS and _CA_LOCATION",
        ) from None
    if not refused:
        return None
    return UserError(
        f"The mail server at {address} refused {len(refused)} of {len(smtp.recipients)} recipients:"
        f" {', '.join(sorted(refused))}",
        "The others have the mail, and it is not sent again; check LAKEHOUSE_SMTP_TO",
    )


def post(webhook: Webhook, key: str, body: Mapping[str, Any]) -> None:
    """Post JSON with its idempotency key in the header `Idempotency-Key`.

    Raises:
        UserError: the answer is none of success (2xx).
        ChannelDownError: there is none.
    """
    headers = {"Idempotency-Key": key}
    if webhook.token:
        headers["Authorization"] = f"Bearer {webhook.token}"
    try:
        response = httpx2.post(webhook.url, json=body, headers=headers, timeout=TIMEOUT)
    except httpx2.HTTPError as error:
        raise ChannelDownError(
            f"The webhook at {webhook.place} does not answer ({type(error).__name__})", "Check LAKEHOUSE_WEBHOOK_URL"
        ) from None
    if not response.is_success:
        raise UserError(
            f"The webhook at {webhook.place} answered {response.status_code}",
            "Check LAKEHOUSE_WEBHOOK_URL and LAKEHOUSE_WEBHOOK_TOKEN",
        )


def _is_web_address(url: str) -> bool:
    try:
        # The port is read for its ValueError; the other reader refuses what the client would.
        return bool(httpx2.URL(url).scheme in {"http", "https"} and urlsplit(url).hostname and urlsplit(url).port != 0)
    except (ValueError, httpx2.InvalidURL):
        return False


def _require_ascii(env: Mapping[str, str], *names: str) -> None:
    for name in names:
        value = env.get(name, "")
        if not (value.isascii() and value.isprintable()):
            raise UserError(f"{name} holds characters that cannot be sent", "Use printable ASCII characters")


def _smtp(env: Mapping[str, str]) -> Smtp:
    def value(name: str, default: str = "") -> str:
        return env.get(f"LAKEHOUSE_SMTP_{name}") or default

    tls = value("TLS", "starttls")
    if tls not in DEFAULT_PORTS:
        raise UserError(f"LAKEHOUSE_SMTP_TLS is '{tls}'", f"Set it to one of {', '.join(DEFAULT_PORTS)}")
    port = value("PORT", str(DEFAULT_PORTS[tls]))
    if not port.isdigit() or int(port) > 65535:
        raise UserError("LAKEHOUSE_SMTP_PORT is not a port number", "Give the port of the mail server")
    user, password = value("USER"), value("PASSWORD")
    if bool(user) != bool(password):
        raise UserError("One of LAKEHOUSE_SMTP_USER and LAKEHOUSE_SMTP_PASSWORD is not set", "Set both or none")
    if user and tls == "none":
        raise UserError("LAKEHOUSE_SMTP_PASSWORD would be sent in the clear", "Set LAKEHOUSE_SMTP_TLS to starttls")
    _require_ascii(env, "LAKEHOUSE_SMTP_USER", "LAKEHOUSE_SMTP_PASSWORD")
    sender = value("FROM")
    recipients = tuple(part.strip() for part in value("TO").split(",") if part.strip())
    for name, addresses in (("FROM", (sender,)), ("TO", recipients or ("",))):
        if not all("@" in parseaddr(address)[1] for address in addresses):
            raise UserError(
                f"LAKEHOUSE_SMTP_{name} holds no mail address", "Write it as name@example.com; recipients with commas"
            )
    return Smtp(value("HOST"), int(port), tls, user, password, sender, recipients, value("CA_LOCATION"))
