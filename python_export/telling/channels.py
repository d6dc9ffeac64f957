"""How readers are told: an SMTP server, a webhook, both or neither, as the environment says."""

import smtplib
import ssl
from collections.abc import Iterable, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.message import EmailMessage
from email.utils import parseaddr, parsedate_to_datetime
from typing import Any
from urllib.parse import urlsplit

import httpx2

from lakehouse.durations import seconds
from lakehouse.errors import UserError
from lakehouse.security import require_secret_way

TIMEOUT = 20.0
DEFAULT_PORTS = {"starttls": 587, "tls": 465, "none": 25}
# SMTP codes from here on say "later", those from there on "no"; HTTP's that say "later" beside the server errors.
TEMPORARY_FROM, PERMANENT_FROM = 400, 500
TRY_AGAIN = {408, 425, 429}
# What a mail server says of one mail; it may take the next.
OF_ONE_MAIL = (
    smtplib.SMTPSenderRefused,
    smtplib.SMTPDataError,
    smtplib.SMTPNotSupportedError,
)


class ChannelDownError(UserError):
    """A channel does not let this client in: it takes no other message either."""


class TemporaryError(UserError):
    """A channel may take the message later, if it is asked again after `wait` seconds or more."""

    def __init__(self, message: str, remedy: str, wait: float = 0.0) -> None:
        super().__init__(message, remedy)
        self.wait = wait


class NoAnswerError(TemporaryError, ChannelDownError):
    """A channel does not answer."""


@dataclass(frozen=True)
class Smtp:
    """A mail server and the envelope; `tls` is starttls, tls or none, `ca` a PEM file or empty for the system's.

    `recipients` are told of files, `alerts` of failures.
    """

    host: str
    port: int
    tls: str
    user: str
    password: str = field(repr=False)
    sender: str
    recipients: tuple[str, ...]
    alerts: tuple[str, ...]
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
    """The configured channels, and for how many seconds each is asked again in a run before it is left to the next."""

    smtp: Smtp | None = None
    webhook: Webhook | None = None
    patience: float = 120.0


def from_environment(env: Mapping[str, str]) -> Channels:
    """Return the channels of `LAKEHOUSE_SMTP_*`, `LAKEHOUSE_ALERT_TO` and `LAKEHOUSE_WEBHOOK_*`.

    Raises:
        UserError: a variable is missing, malformed, or contradicts another.
    """
    smtp = _smtp(env) if env.get("LAKEHOUSE_SMTP_HOST") else None
    url, token = env.get("LAKEHOUSE_WEBHOOK_URL", ""), env.get("LAKEHOUSE_WEBHOOK_TOKEN", "")
    if url and not _is_web_address(url):
        raise UserError("LAKEHOUSE_WEBHOOK_URL is not a URL", "Write it as https://host/path")
    require_secret_way("LAKEHOUSE_WEBHOOK_URL", url, "LAKEHOUSE_WEBHOOK_TOKEN" if token else "")
    _require_ascii(env, "LAKEHOUSE_WEBHOOK_TOKEN")
    patience = env.get("LAKEHOUSE_NOTIFY_TIMEOUT") or "2m"
    try:
        return Channels(smtp, Webhook(url, token) if url else None, seconds(patience))
    except UserError as error:
        raise UserError(f"LAKEHOUSE_NOTIFY_TIMEOUT: {error.message}", error.remedy) from None


def send(smtp: Smtp, message: EmailMessage, recipients: Iterable[str]) -> dict[str, int]:
    """Hand a mail to the server for some recipients, and return the code for each of those that it refused.

    Raises:
        UserError: the server did not take it for any recipient, and never will.
        TemporaryError: it may take the mail later.
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
            refused = server.send_message(message, to_addrs=list(recipients))
            with suppress(smtplib.SMTPException, OSError):
                server.quit()
    except smtplib.SMTPRecipientsRefused as error:
        refused = error.recipients
    except smtplib.SMTPException as error:
        # What a server says may quote the mail; its code does not.
        code = getattr(error, "smtp_code", None)
        kind = UserError if isinstance(error, OF_ONE_MAIL) else ChannelDownError
        if isinstance(error, smtplib.SMTPServerDisconnected):
            kind = NoAnswerError
        elif code and TEMPORARY_FROM <= code < PERMANENT_FROM:
            kind = TemporaryError
        raise kind(
            f"The mail server at {address} did not take the mail ({type(error).__name__}{f' {code}' if code else ''})",
            "Check LAKEHOUSE_SMTP_TLS, _USER, _PASSWORD, _FROM and _TO",
        ) from None
    except OSError as error:
        kind = ChannelDownError if isinstance(error, ssl.SSLError) else NoAnswerError
        raise kind(
            f"The mail server at {address} does not answer ({error.strerror or type(error).__name__})",
            "Check LAKEHOUSE_SMTP_HOST, _PORT, _TLS and _CA_LOCATION",
        ) from None
    return {recipient: code for recipient, (code, _) in refused.items()}


def post(webhook: Webhook, key: str, body: Mapping[str, Any]) -> None:
    """Post JSON with its idempotency key in the header `Idempotency-Key`.

    Raises:
        UserError: the answer is a refusal.
        TemporaryError: it asks to try again, after the time that it names.
        NoAnswerError: there is none.
    """
    headers = {"Idempotency-Key": key}
    if webhook.token:
        headers["Authorization"] = f"Bearer {webhook.token}"
    try:
        response = httpx2.post(webhook.url, json=body, headers=headers, timeout=TIMEOUT)
    except httpx2.HTTPError as error:
        raise NoAnswerError(
            f"The webhook at {webhook.place} does not answer ({type(error).__name__})", "Check LAKEHOUSE_WEBHOOK_URL"
        ) from None
    if response.is_success:
        return
    message = f"The webhook at {webhook.place} answered {response.status_code}"
    remedy = "Check LAKEHOUSE_WEBHOOK_URL and LAKEHOUSE_WEBHOOK_TOKEN"
    if response.status_code in TRY_AGAIN or response.is_server_error:
        raise TemporaryError(message, remedy, _seconds(response.headers.get("Retry-After", "")))
    raise UserError(message, remedy)


def _seconds(retry_after: str) -> float:
    """Return how long a Retry-After header asks to wait: it is a number of seconds or a date."""
    if retry_after.isdigit():
        return float(retry_after)
    try:
        return max(0.0, (parsedate_to_datetime(retry_after) - datetime.now(UTC)).total_seconds())
    except (TypeError, ValueError):
        return 0.0


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
    sender, readers = value("FROM"), env.get("LAKEHOUSE_SMTP_TO") or ""
    recipients, alerts = (_addresses(one) for one in (readers, env.get("LAKEHOUSE_ALERT_TO") or readers))
    for name, addresses in (("SMTP_FROM", (sender,)), ("SMTP_TO", recipients), ("ALERT_TO", alerts)):
        if not addresses or not all("@" in parseaddr(address)[1] for address in addresses):
            raise UserError(
                f"LAKEHOUSE_{name} holds no mail address", "Write it as name@example.com; recipients with commas"
            )
    return Smtp(value("HOST"), int(port), tls, user, password, sender, recipients, alerts, value("CA_LOCATION"))


def _addresses(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())
