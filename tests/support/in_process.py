"""The command `lakehouse` in the test process, where no boundary between processes is what is tested."""

import re
import subprocess
from collections.abc import Callable

from typer.testing import CliRunner

from python_common.errors import UserError
from python_jobs import cli

Lakehouse = Callable[..., subprocess.CompletedProcess[str]]


def without_times(log: str) -> str:
    """Return a log without the times that its lines begin with."""
    return re.sub(r"(?m)^[\d-]+T[\d:.]+Z ", "", log)


def lakehouse(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command as `run_lakehouse` does; `test_console.py` and `test_ingest_cli.py` start real ones."""
    result = CliRunner().invoke(cli.app, arguments)
    errors = without_times(result.stderr)
    if isinstance(result.exception, UserError):
        errors += f"error: {result.exception}\n"
    elif result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return subprocess.CompletedProcess(arguments, result.exit_code, result.stdout, errors)
