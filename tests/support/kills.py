"""Kills by SIGKILL: of a process at a point of a table, or of a command or service with all that it has started."""

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pkgutil import resolve_name
from typing import Any, NamedTuple

import psutil

from python_common.config.environment import PROJECT_ROOT
from tests.support.commands import LAKEHOUSE
from tests.support.forked import FORKS, preload

# What the processes of the table load.
preload("python_jobs.weekly.job", "python_jobs.fork")

BEFORE, AFTER = "before", "after"
# The kill comes from outside, once a batch has written such a file, or is committed.
FILE, COMMIT = "file", "commit"


class Point(NamedTuple):
    """When a process dies: before or after the first call of a function, one of whose arguments contains a text."""

    moment: str
    name: str = ""
    argument: str = ""


def _version_points(store: str) -> dict[str, Point]:
    return {
        "before the files": Point(BEFORE, f"{store}.upload"),
        "before the manifest": Point(BEFORE, f"{store}.create", "/manifest.json"),
        "between manifest and pointer": Point(AFTER, f"{store}.create", "/manifest.json"),
        "after the pointer": Point(AFTER, f"{store}.put", "/latest.json"),
    }


# Each state that a kill can leave, by process.
POINTS: dict[str, dict[str, Point]] = {
    "ingester": {
        "while data files are written": Point(FILE, "data/**/*.parquet"),
        "between data files and commit": Point(FILE, "metadata/*-m*.avro"),
        "as soon as it is committed": Point(COMMIT),
    },
    "rows erased": {
        "before the branch is the table": Point(BEFORE, "pyspark.sql.SparkSession.sql", "fast_forward"),
        "before the branch is dropped": Point(BEFORE, "pyspark.sql.SparkSession.sql", "drop branch"),
    },
    "key rotated": {"between copy and key": Point(BEFORE, "pathlib.Path.replace")},
    "version published, bucket": _version_points("python_export.publishing.bucket.Bucket"),
    "version published, directory": {
        **_version_points("python_export.publishing.directory.Directory"),
        "before the name of the manifest": Point(BEFORE, "pathlib.Path.hardlink_to", "/manifest.json"),
        "within the pointer": Point(BEFORE, "pathlib.Path.replace", "/latest.json"),
    },
    "weekly run": {"in a step": Point(BEFORE, "python_jobs.weekly.job._run_steps")},
    "notify": {"between message and note": Point(BEFORE, "python_export.notify.outbox.mark_delivered")},
    "fork created": {
        "after the first tag": Point(AFTER, "python_common.catalog.commits.tag"),
        "between tags and catalog": Point(BEFORE, "python_jobs.fork_catalog.write"),
        "between catalog and files": Point(BEFORE, "python_jobs.fork._write_properties"),
        "before it has its name": Point(BEFORE, "pathlib.Path.rename"),
        "before its server starts": Point(BEFORE, "python_common.process.Service.start"),
    },
    "fork dropped": {
        "after it has lost its name": Point(AFTER, "pathlib.Path.rename"),
        "before the first file is deleted": Point(BEFORE, "python_common.private_files.delete"),
        "after the first file is deleted": Point(AFTER, "python_common.private_files.delete"),
        "after the first tag": Point(AFTER, "python_common.catalog.commits.remove_tag"),
        "after the last tag": Point(AFTER, "python_jobs.fork_catalog.untag"),
    },
    "review": {"while it compiles": Point(BEFORE, "python_dev.review.run.compiled_manifest")},
}


def killed_at(process: str, point: str, function: Callable[..., Any], *arguments: Any) -> None:
    """Run a function in a process that dies at a point of the table; fail the test if it does not.

    The process has the environment of this one, and nothing else that a test has changed.
    """
    child = FORKS.Process(target=_run, args=(dict(os.environ), POINTS[process][point], function, arguments))
    child.start()
    child.join()
    assert child.exitcode == -signal.SIGKILL, f"{process}: it is not killed {point}"


def _run(env: dict[str, str], point: Point, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    os.environ.clear()
    os.environ.update(env)
    step: Callable[..., Any] = resolve_name(point.name)

    def die(*arguments: Any, **options: Any) -> Any:
        is_here = point.argument in str(arguments)
        result = None if is_here and point.moment == BEFORE else step(*arguments, **options)
        if is_here:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    owner, _, name = point.name.rpartition(".")
    setattr(resolve_name(owner), name, die)
    function(*arguments)


@contextmanager
def running(*arguments: str, output: int = subprocess.DEVNULL) -> Iterator[subprocess.Popen[str]]:
    """Run `lakehouse` in a separate session, and kill it in the end, with its JVM and all else that it has started."""
    process = subprocess.Popen(
        [LAKEHOUSE, *arguments],
        cwd=PROJECT_ROOT,
        stdout=output,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        kill(process)


def kill(process: subprocess.Popen[str] | psutil.Process | None) -> None:
    """Kill a command or a service, and all that it has started; each has a session."""
    assert process is not None
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(30)
