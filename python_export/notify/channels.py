"""The channels to readers: an SMTP server and a webhook."""

import smtplib
import ssl
from collections.abc import Mapping
from contextlib import closing, suppress
from email.message import EmailMessage
from typing import Any

import httpx2

from python_common.errors import UserError
from python_common.log import log
from python_export.variables import Smtp, Webhook

TIMEOUT = 20.0
# SMTP codes from 400 on ask to try later, from 500 on they refuse; HTTP codes that ask to try later, but for 5xx.
TEMPORARY_FROM, PERMANENT_FROM = 400, 500
RETRIED_CODES = {408, 425, 429}


class TemporaryError(UserError):
    """A channel may take the message if it is asked again."""


def send(smtp: Smtp, message: EmailMessage) -> None:
    """Hand a mail to the server for all its recipients; those that it refuses while it takes the mail are logged.

    Raises:
        UserError: the server refused the mail, all recipients or the login.
        TemporaryError: it does not answer, or may take the mail later.
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
            refused = server.send_message(message)
            with suppress(smtplib.SMTPException, OSError):
                server.quit()
        if refused:
            log.warning(
                "the mail server at %s refused %d of the recipients; the others have the mail", address, len(refused)
            )
    except smtplib.SMTPException as error:
        # A server's answer may quote the mail; its code does not.
        code = getattr(error, "smtp_code", 0)
        if isinstance(error, smtplib.SMTPRecipientsRefused):
            code = min(code for code, _ in error.recipients.values())
        is_temporary = TEMPORARY_FROM <= code < PERMANENT_FROM or isinstance(error, smtplib.SMTPServerDisconnected)
        error_type = TemporaryError if is_temporary else UserError
        raise error_type(
            f"The mail server at {address} did not take the mail ({type(error).__name__}{f' {code}' if code else ''})",
            "Check LAKEHOUSE_SMTP_TLS, _USER, _PASSWORD, _FROM and _TO, and LAKEHOUSE_ALERT_TO",
        ) from None
    except OSError as error:
        error_type = UserError if isinstance(error, ssl.SSLError) else TemporaryError
        raise error_type(
            f"The mail server at {address} does not answer ({error.strerror or type(error).__name__})",
            "Check LAKEHOUSE_SMTP_HOST, _PORT, _TLS and _CA_LOCATION",
        ) from None


def post(webhook: Webhook, key: str, body: Mapping[str, Any]) -> None:
    """Post JSON with its idempotency key in the header `Idempotency-Key`.

    Raises:
        UserError: the answer is a refusal.
        TemporaryError: it asks to try again, or there is none.
    """
    headers = {"Idempotency-Key": key}
    if webhook.token:
        headers["Authorization"] = f"Bearer {webhook.token}"
    try:
        response = httpx2.post(webhook.url, json=body, headers=headers, timeout=TIMEOUT)
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        raise TemporaryError(
            f"The webhook at {webhook.origin} does not answer ({type(error).__name__})", "Check LAKEHOUSE_WEBHOOK_URL"
        ) from None
    if response.is_success:
        return
    message = f"The webhook at {webhook.origin} answered {response.status_code}"
    remedy = "Check LAKEHOUSE_WEBHOOK_URL and LAKEHOUSE_WEBHOOK_TOKEN"
    if response.status_code in RETRIED_CODES or response.is_server_error:
        raise TemporaryError(message, remedy)
    raise UserError(message, remedy)
