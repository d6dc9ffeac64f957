"""dbt in forks of a process that has loaded its modules: they take longer to load than most of its commands to run."""

import multiprocessing
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

# dbt imports every module whose name begins with dbt_, in case it is a plugin.
PLUGINS = ("dbt_bouncer",)
_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["dbt.cli.main", "dbt.adapters.spark.impl", *PLUGINS])


def dbt(
    arguments: Sequence[str], directory: Path, env: dict[str, str], timeout: float
) -> subprocess.CompletedProcess[str]:
    """Run a dbt command as `subprocess.run` does, with its outputs as text."""
    with tempfile.NamedTemporaryFile("r") as stdout, tempfile.NamedTemporaryFile("r") as stderr:
        process = _CONTEXT.Process(target=_dbt, args=(arguments, directory, env, stdout.name, stderr.name))
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
