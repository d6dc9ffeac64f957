"""The commands `lakehouse` and `dbt` in the test process, where no boundary between processes is what is tested."""

import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from click.testing import Result
from typer.testing import CliRunner

from python_common.config.environment import PROJECT_ROOT
from python_common.errors import UserError
from python_jobs import cli

if TYPE_CHECKING:
    from dbt.cli.main import dbtRunnerResult
    from dbt.contracts.graph.manifest import Manifest

Lakehouse = Callable[..., subprocess.CompletedProcess[str]]
Dbt = Callable[..., "dbtRunnerResult"]
Command = Callable[..., Result]


def without_times(log: str) -> str:
    """Return a log without the times that its lines begin with."""
    return re.sub(r"(?m)^[\d-]+T[\d:.]+Z ", "", log)


def lakehouse(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command as `run_lakehouse` does; `python_jobs/test_cli.py` and `cli/test_ingest.py` start real ones."""
    result = CliRunner().invoke(cli.app, arguments)
    errors = without_times(result.stderr)
    if isinstance(result.exception, UserError):
        errors += f"error: {result.exception}\n"
    elif result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return subprocess.CompletedProcess(arguments, result.exit_code, result.stdout, errors)


def dbt(*arguments: str, project: Path = PROJECT_ROOT, manifest: "Manifest | None" = None) -> "dbtRunnerResult":
    """Run dbt with the repository's profile on a project, which it parses if there is no manifest."""
    # Takes longer than any unit test, which are collected by the same process.
    from dbt.cli.main import dbtRunner  # noqa: PLC0415

    directories = ("--project-dir", str(project), "--profiles-dir", str(PROJECT_ROOT))
    return dbtRunner(manifest=manifest).invoke(["--quiet", *arguments, *directories])
