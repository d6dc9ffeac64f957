"""Translates any error into a message with a remedy that quotes no record."""

import os
import traceback
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from python_common.catalog.catalog import is_unavailable, unavailable
from python_common.config.environment import home
from python_common.config.settings import Settings, from_environment
from python_common.errors import UserError

MOST_BYTES = 10_000_000


def to_user_error(error: Exception, settings: Settings | None = None, subject: str = "") -> UserError:
    """Return an error as a UserError; an unexpected one is recorded in `error_log()`, without its message.

    `subject`, such as a topic, begins the message. Without settings those of the environment are used.
    """
    if isinstance(error, UserError):
        return error
    prefix = f"{subject}: " if subject else ""
    if is_unavailable(error):
        try:
            translated = unavailable(settings or from_environment(), error)
        except UserError as missing:
            return missing
        return UserError(f"{prefix}{translated.message}", translated.remedy)
    what = f"{prefix}Unexpected error: {type(error).__name__}"
    if not _recorded(error, subject):
        return UserError(what, f"Run it again, and report it; {error_log()} cannot be written")
    return UserError(what, f"Run it again, and report it with the end of {error_log()}")


def error_log() -> Path:
    """Return the file that records where unexpected errors happened; mode 0600."""
    return home() / "errors.log"


def _recorded(error: Exception, subject: str) -> bool:
    """Record types and tracebacks of an error and its causes: messages may quote a record or a password."""
    lines = [f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} {subject}\n"]
    at: BaseException | None = error
    while at is not None:
        lines += [f"{type(at).__module__}.{type(at).__qualname__}\n", *traceback.format_tb(at.__traceback__)]
        at = at.__cause__ or (None if at.__suppress_context__ else at.__context__)
    path = error_log()
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and path.stat().st_size > MOST_BYTES:
            path.unlink()
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), "a") as log:
            log.writelines(lines)
        return True
    return False
