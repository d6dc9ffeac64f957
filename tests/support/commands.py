"""The commands `lakehouse` and `dbt` in separate processes, as users run them."""

import os
import subprocess
import sys
from pathlib import Path

from python_common.config.environment import PROJECT_ROOT, env_file, read_env_file
from python_common.config.settings import Settings, from_environment
from python_dev.stack import stack
from tests.support import forked
from tests.support.in_process import without_times

LAKEHOUSE = Path(sys.executable).with_name("lakehouse")


def run_lakehouse(*arguments: str, timeout: float = 900) -> subprocess.CompletedProcess[str]:
    """Run the console command as a user does; its log is returned without times. The caller looks at the exit code."""
    finished = subprocess.run(
        [LAKEHOUSE, *arguments], cwd=PROJECT_ROOT, capture_output=True, text=True, timeout=timeout, check=False
    )
    finished.stderr = without_times(finished.stderr)
    return finished


def run_python(script: str, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run a script: a command that kills itself as by kill -9, or for which a constant differs."""
    command = [sys.executable, "-c", script, *arguments]
    env = {**os.environ, **env}
    return subprocess.run(command, cwd=PROJECT_ROOT, env=env, capture_output=True, text=True, timeout=900, check=False)


def run_dbt(
    *arguments: str, directory: Path = PROJECT_ROOT, timeout: float = 900, **env: str
) -> subprocess.CompletedProcess[str]:
    """Run dbt with the project's profile; the caller looks at the exit code.

    In another target directory it finds what was parsed last of this project on the lake, too.
    """
    parsed = Path(os.environ.get("DBT_TARGET_PATH", "none"), "partial_parse.msgpack")
    known = ("--partial-parse-file-path", str(parsed)) if directory == PROJECT_ROOT and parsed.exists() else ()
    arguments = ("--no-use-colors", *arguments, *known, "--profiles-dir", str(PROJECT_ROOT))
    return forked.dbt(arguments, directory, {**os.environ, **env}, timeout)


def run_dbt_well(*arguments: str, directory: Path = PROJECT_ROOT, **env: str) -> str:
    """Run dbt as `run_dbt` does, fail the test with the end of its output if dbt fails, and return the output."""
    finished = run_dbt(*arguments, directory=directory, **env)
    assert finished.returncode == 0, finished.stdout[-3000:]
    return finished.stdout


def started(*only: str) -> Settings:
    """Start services, by default all, and let the environment name them."""
    started = run_lakehouse("stack", "up", *only)
    assert started.returncode == 0, started.stderr
    os.environ.update(read_env_file(env_file()))
    return from_environment()


def wipe() -> None:
    """End the services at once, for what they would write first is deleted with all data."""
    for service in stack.services(stack.variables(())).values():
        if process := service.process():
            process.kill()
    run_lakehouse("stack", "down", "--wipe")
