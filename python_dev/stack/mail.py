"""The mail server of the local stack: it stores every mail as a file, and relays none."""

import smtplib
import sys
import threading
import time
from email import message_from_bytes, policy
from email.message import EmailMessage
from pathlib import Path

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, Envelope, Session

from python_common.process import Service


class MailSink:
    """Stores each mail as `<time>.eml`; the newest has the greatest name."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:
        """Store a mail; called by aiosmtpd."""
        (self._directory / f"{time.time_ns()}.eml").write_bytes(envelope.original_content or b"")
        return "250 OK"


def service(directory: Path, port: int) -> Service:
    """Return the mail server; the mails are in `directory`."""
    return Service(
        name="mail",
        directory=directory,
        command=lambda: [sys.executable, "-m", "python_dev.stack.mail", str(directory), str(port)],
        ports={"LAKEHOUSE_SMTP_PORT": port},
        answers=lambda: _answers(port),
    )


def variables(port: int) -> dict[str, str]:
    """Return the variables by which the export mails to this server."""
    return {
        "LAKEHOUSE_SMTP_HOST": "127.0.0.1",
        "LAKEHOUSE_SMTP_PORT": str(port),
        "LAKEHOUSE_SMTP_TLS": "none",
        "LAKEHOUSE_SMTP_FROM": "lakehouse@localhost.example",
        "LAKEHOUSE_SMTP_TO": "analysts@localhost.example",
    }


def newest(directory: Path) -> EmailMessage | None:
    """Return the newest mail, or None."""
    mails = sorted(directory.glob("*.eml"))
    return message_from_bytes(mails[-1].read_bytes(), policy=policy.default) if mails else None


def _answers(port: int) -> bool:
    try:
        with smtplib.SMTP("127.0.0.1", port, timeout=2):
            return True
    except OSError:
        return False


if __name__ == "__main__":
    Controller(MailSink(Path(sys.argv[1])), hostname="127.0.0.1", port=int(sys.argv[2])).start()
    threading.Event().wait()
