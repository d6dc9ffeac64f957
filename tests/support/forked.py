"""Forks of a process that has loaded modules, such as dbt: they take longer to load than most commands to run."""

import multiprocessing
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

# dbt imports every module whose name begins with dbt_, in case it is a plugin.
DBT = ("dbt.cli.main", "dbt.adapters.spark.impl", "dbt_bouncer")
FORKS = multiprocessing.get_context("forkserver")
_preloaded: set[str] = set()


def preload(*modules: str) -> None:
    """Have the server of forks load modules when it starts, besides those of other callers."""
    _preloaded.update(modules)
    FORKS.set_forkserver_preload(sorted(_preloaded))


def dbt(
    arguments: Sequence[str], directory: Path, env: dict[str, str], timeout: float
) -> subprocess.CompletedProcess[str]:
    """Run a dbt command as `subprocess.run` does, with its outputs as text."""
    preload(*DBT)
    with tempfile.NamedTemporaryFile("r") as stdout, tempfile.NamedTemporaryFile("r") as stderr:
        process = FORKS.Process(target=_dbt, args=(arguments, directory, env, stdout.name, stderr.name))
        process.start()
        process.join(timeout)
        if process.exitcode is None:
            process.kill()
            raise subprocess.TimeoutExpired(["dbt", *arguments], timeout)
        return subprocess.CompletedProcess(["dbt", *arguments], process.exitcode, stdout.read(), stderr.read())


def _dbt(arguments: Sequence[str], directory: Path, env: dict[str, str], stdout: str, stderr: str) -> None:
    from dbt.cli.main import cli  # noqa: PLC0415  (the caller does without)

    os.chdir(directory)
    os.environ.clear()
    os.environ.update(env)
    for path, descriptor in ((stdout, 1), (stderr, 2)):
        os.dup2(os.open(path, os.O_WRONLY), descriptor)
    sys.argv = ["dbt", *arguments]
    cli()
