"""The log of all commands on stderr: one line per event, with its time in UTC, as text or as JSON.

Results are printed on stdout (python_common.output). No traceback is logged: it could quote a record.
"""

import json
import logging
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Literal, TextIO

from python_common.errors import UserError

Level = Literal["debug", "info", "warning", "error"]
Format = Literal["text", "json"]

log = logging.getLogger("lakehouse")
log.setLevel(logging.INFO)


class _Formatter(logging.Formatter):
    def __init__(self, style: Format) -> None:
        super().__init__()
        self._is_json = style == "json"

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        event = {
            "time": time.replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "message": record.getMessage(),
        }
        return json.dumps(event) if self._is_json else "{time} {level}: {message}".format(**event)


class _Handler(logging.StreamHandler[TextIO]):
    def emit(self, record: logging.LogRecord) -> None:
        self.stream = sys.stderr  # whichever it is now: tests replace it
        super().emit(record)


_handler = _Handler()
# Py4J logs on the root logger what it raises as well, if a JVM ends in the middle of a call.
_handler.addFilter(lambda record: record.name != "root")


def configure(level: Level = "info", style: Format = "text") -> None:
    """Log events of a level and above to stderr; of libraries, warnings and errors alone."""
    _handler.setFormatter(_Formatter(style))
    logging.getLogger().addHandler(_handler)
    for library in ("py4j", "urllib3"):  # what they retry is no event of a command
        logging.getLogger(library).setLevel(logging.CRITICAL)
    log.setLevel(level.upper())


def run_module(main: Callable[..., None], *arguments: object) -> None:
    """Run the main function of a module; a UserError is logged and ends the process with exit code 1."""
    configure()
    try:
        main(*arguments)
    except UserError as error:
        log.error(error)
        sys.exit(1)
