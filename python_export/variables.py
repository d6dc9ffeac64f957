"""The variables that exports alone read: which datasets are exported, and how their readers are notified."""

import time
from datetime import timedelta
from email.utils import parseaddr
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, HttpUrl, TypeAdapter, ValidationError, model_validator

from python_common.config.security import TRUSTED, require_secret_way
from python_common.config.variables import MalformedError, Port, Variables, for_exports
from python_common.errors import UserError

DEFAULT_PORTS = {"starttls": 587, "tls": 465, "none": 25}
WEB_ADDRESS = TypeAdapter(HttpUrl)


def _addresses(value: Any) -> Any:
    addresses = tuple(part.strip() for part in value.split(",") if part.strip()) if isinstance(value, str) else value
    if not addresses or not all("@" in parseaddr(address)[1] for address in addresses):
        raise MalformedError("holds no mail address", "Write it as name@example.com; recipients with commas")
    return addresses


def _one_address(value: Any) -> Any:
    _addresses((value,))
    return value


def _sendable(text: str) -> str:
    if not (text.isascii() and text.isprintable()):
        raise MalformedError("holds characters that cannot be sent", "Use printable ASCII characters")
    return text


def _host(name: str) -> str:
    try:
        name.encode("idna")
    except UnicodeError:
        raise MalformedError("is not a host name", "Write it like mail.example.com") from None
    return name


def _web_address(url: str) -> str:
    try:
        good = WEB_ADDRESS.validate_python(url).port != 0
    except ValidationError:
        good = False
    if not good:
        raise MalformedError("is not a URL", "Write it as https://host/path")
    return url


def _weekly_time(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        moment = time.strptime(value, "%a %H:%M")
    except ValueError:
        raise MalformedError(f"is '{value}', which is not a time of the week", "Write it like Mon 09:00") from None
    return timedelta(days=moment.tm_wday, hours=moment.tm_hour, minutes=moment.tm_min)


Addresses = Annotated[tuple[str, ...], BeforeValidator(_addresses)]
Sendable = Annotated[str, AfterValidator(_sendable)]
# Since Monday 00:00 UTC.
WeeklyTime = Annotated[timedelta | None, BeforeValidator(_weekly_time), "a time like `Mon 09:00`"]


class Choices(Variables):
    """Which datasets are exported."""

    audience: str = for_exports(
        "LAKEHOUSE_EXPORT_AUDIENCE",
        "the datasets whose `config.meta.export.audience` it is are exported, no others; without it all:"
        " [export.md](export.md)",
        "",
    )


class Smtp(Variables):
    """A mail server and the envelope. `recipients` get the mails of files, `alerts` those of failures."""

    host: Annotated[str, AfterValidator(_host)] = for_exports(
        "LAKEHOUSE_SMTP_HOST", "the mail server that sends notifications", default_text="no mail"
    )
    tls: Literal["starttls", "tls", "none"] = for_exports(
        "LAKEHOUSE_SMTP_TLS", "how the mail server is spoken to", "starttls"
    )
    port: Port = for_exports(
        "LAKEHOUSE_SMTP_PORT",
        "port of the mail server",
        factory=lambda before: DEFAULT_PORTS[before["tls"]],
        default_text="by `LAKEHOUSE_SMTP_TLS`: 587, 465 or 25",
    )
    user: Sendable = for_exports("LAKEHOUSE_SMTP_USER", "login at the mail server", "")
    password: Sendable = for_exports("LAKEHOUSE_SMTP_PASSWORD", "password of that login", "", secret=True)
    ca: str = for_exports("LAKEHOUSE_SMTP_CA_LOCATION", f"for the mail server: {TRUSTED}", "")
    sender: Annotated[str, BeforeValidator(_one_address)] = for_exports(
        "LAKEHOUSE_SMTP_FROM", "the sender of mails", default_text="must be set with a mail server"
    )
    recipients: Addresses = for_exports(
        "LAKEHOUSE_SMTP_TO", "the receivers of mails, with commas", default_text="must be set with a mail server"
    )
    alerts: Addresses = for_exports(
        "LAKEHOUSE_ALERT_TO",
        "the receivers of failures",
        factory=lambda before: before["recipients"],
        default_text="those of files",
    )

    @model_validator(mode="after")
    def _fits(self) -> Self:
        user, password = self.variable("user"), self.variable("password")
        if bool(self.user) != bool(self.password):
            raise UserError(f"One of {user} and {password} is not set", "Set both or none")
        if self.user and self.tls == "none":
            raise UserError(f"{password} would be sent in the clear", f"Set {self.variable('tls')} to starttls")
        return self


class Webhook(Variables):
    """A URL that takes JSON; the URL itself is often a secret."""

    url: Annotated[str, AfterValidator(_web_address)] = for_exports(
        "LAKEHOUSE_WEBHOOK_URL",
        "where the new files of a week are posted as JSON: [operations.md](operations.md#the-call-of-a-webhook)",
        default_text="nowhere",
        secret=True,
    )
    token: Sendable = for_exports(
        "LAKEHOUSE_WEBHOOK_TOKEN",
        "the webhook's bearer token; refused with an http URL, but on this machine",
        "",
        secret=True,
    )

    @property
    def origin(self) -> str:
        """Scheme and host, which messages may show."""
        split = urlsplit(self.url)
        return f"{split.scheme}://{split.hostname}"

    @model_validator(mode="after")
    def _fits(self) -> Self:
        require_secret_way(self.variable("url"), self.url, self.variable("token") if self.token else "")
        return self


class Channels(Variables):
    """The configured channels, whose versions they announce, and when files are expected."""

    smtp: Smtp | None = None
    webhook: Webhook | None = None
    root: str | None = for_exports(
        "LAKEHOUSE_NOTIFY_ROOT",
        "the export root whose versions readers are notified of; exports to another one, a trial for instance, are not"
        " announced",
        None,
        default_text="`LAKEHOUSE_EXPORT_ROOT`",
    )
    expected_by: WeeklyTime = for_exports(
        "LAKEHOUSE_EXPORT_EXPECTED_BY",
        "when the files of the last week are expected, in UTC; an alarm names each due dataset that is not published by"
        " then: [operations.md](operations.md#alarms)",
        None,
        default_text="no alarm",
    )
