"""The channels to readers: an SMTP server and a webhook."""

import smtplib
import ssl
from collections.abc import Iterable, Mapping
from contextlib import closing, suppress
from datetime import UTC, datetime
from email.message import EmailMessage
from email.utils import parsedate_to_datetime
from typing import Any

import httpx2

from python_common.errors import UserError
from python_export.variables import Smtp, Webhook

TIMEOUT = 20.0
# SMTP codes from 400 on ask to try later, from 500 on they refuse; HTTP codes that ask to try later, but for 5xx.
TEMPORARY_FROM, PERMANENT_FROM = 400, 500
TRY_AGAIN = {408, 425, 429}
# Refusals of one mail; the server may take the next.
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
        server: smtplib.SMTP
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
        # A server's answer may quote the mail; its code does not.
        code = getattr(error, "smtp_code", None)
        error_type = UserError if isinstance(error, OF_ONE_MAIL) else ChannelDownError
        if isinstance(error, smtplib.SMTPServerDisconnected):
            error_type = NoAnswerError
        elif code and TEMPORARY_FROM <= code < PERMANENT_FROM:
            error_type = TemporaryError
        raise error_type(
            f"The mail server at {address} did not take the mail ({type(error).__name__}{f' {code}' if code else ''})",
            "Check LAKEHOUSE_SMTP_TLS, _USER, _PASSWORD, _FROM and _TO",
        ) from None
    except OSError as error:
        error_type = ChannelDownError if isinstance(error, ssl.SSLError) else NoAnswerError
        raise error_type(
            f"The mail server at {address} does not answer ({error.strerror or type(error).__name__})",
            "Check LAKEHOUSE_SMTP_HOST, _PORT, _TLS and _CA_LOCATION",
        ) from None
    return {recipient: code for recipient, (code, _) in refused.items()}


def post(webhook: Webhook, key: str, body: Mapping[str, Any]) -> None:
    """Post JSON with its idempotency key in the header `Idempotency-Key`.

    Raises:
        UserError: the answer is a refusal.
        TemporaryError: it asks to try again, after the time that it names.
        NoAnswerError: it does not answer.
    """
    headers = {"Idempotency-Key": key}
    if webhook.token:
        headers["Authorization"] = f"Bearer {webhook.token}"
    try:
        response = httpx2.post(webhook.url, json=body, headers=headers, timeout=TIMEOUT)
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        raise NoAnswerError(
            f"The webhook at {webhook.origin} does not answer ({type(error).__name__})", "Check LAKEHOUSE_WEBHOOK_URL"
        ) from None
    if response.is_success:
        return
    message = f"The webhook at {webhook.origin} answered {response.status_code}"
    remedy = "Check LAKEHOUSE_WEBHOOK_URL and LAKEHOUSE_WEBHOOK_TOKEN"
    if response.status_code in TRY_AGAIN or response.is_server_error:
        raise TemporaryError(message, remedy, _seconds(response.headers.get("Retry-After", "")))
    raise UserError(message, remedy)


def _seconds(retry_after: str) -> float:
    """Return how long a Retry-After header asks to wait: it is a number of seconds or a date."""
    if retry_after.isascii() and retry_after.isdigit():
        return float(retry_after)
    try:
        return max(0.0, (parsedate_to_datetime(retry_after) - datetime.now(UTC)).total_seconds())
    except (TypeError, ValueError):
        return 0.0
