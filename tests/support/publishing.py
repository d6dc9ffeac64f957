"""Processes for the tests of faults: one that publishes and may kill itself at a step, one that reads all the while."""

import hashlib
import json
import multiprocessing
import os
import signal
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path, PurePosixPath
from typing import Any

from python_common.config.settings import Settings
from python_common.errors import UserError
from python_export.notify import index
from python_export.publishing.s3_target import S3Target
from python_export.publishing.target import LocalTarget, Target, open_target
from tests.support.versions import publish_content

# The server of `tests.support.forked`: another list of modules to load would replace its dbt.
FORKS = multiprocessing.get_context("forkserver")


def start(function: Callable[..., None], *arguments: Any) -> BaseProcess:
    """Start a process with this one's environment of now."""
    process = FORKS.Process(target=_run, args=(dict(os.environ), function, arguments))
    process.start()
    return process


def _run(env: dict[str, str], function: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    os.environ.update(env)
    function(*arguments)


def kill_at(owner: type, name: str, is_after: bool) -> None:
    """Have the process die before or after a step."""
    step: Callable[..., None] = getattr(owner, name)

    def die(*arguments: Any) -> None:
        if is_after:
            step(*arguments)
        os.kill(os.getpid(), signal.SIGKILL)

    setattr(owner, name, die)


# Each state that a kill can leave: the step, and whether the process dies before or after it.
POINTS: dict[str, dict[str, tuple[type, str, bool]]] = {
    "local": {
        "before the version": (LocalTarget, "_open", False),
        "between version and pointer": (LocalTarget, "add", True),
        "within the pointer": (Path, "replace", False),
        "after the pointer": (LocalTarget, "put", True),
    },
    "s3": {
        "before the version": (S3Target, "_commit", False),
        "between version and pointer": (S3Target, "add", True),
        "after the pointer": (S3Target, "put", True),
    },
}


def unlock(directory: Path) -> None:
    """Let a test change what is published: a version cannot be written."""
    for path in (directory, *directory.rglob("*")):
        path.chmod(path.stat().st_mode | 0o200)


def leave_changes(target: Target, version: str) -> None:
    """Put changes.csv beside the file of a version, as releases before 0.7 did."""
    file = PurePosixPath(version, json.loads(target.read(f"{version}/manifest.json"))["file"])
    target.put(str(file.with_name("changes.csv")), b"change,note,changed_columns\nremoved,a,\n")


def publish_and_die(settings: Settings, content: str, kind: str, point: str) -> None:
    """Publish in a child that kills itself at a point."""
    kill_at(*POINTS[kind][point])
    publish_content(open_target(settings), content)
    index.write(open_target(settings))


def publish_and_report(settings: Settings, content: str, begin: Any, connection: Connection) -> None:
    """Publish in a child at the same time as others, and send the outcome."""
    target = open_target(settings)
    begin.wait()
    try:
        version = publish_content(target, content)
        connection.send((version.manifest.version, not version.unchanged))
    except UserError as error:
        connection.send(error.message)


def read_all_the_while(settings: Settings, stop: Any, connection: Connection) -> None:
    """Read by the reader's rule until asked to stop; send how many versions were seen, and what was wrong."""
    target = open_target(settings)
    seen: dict[str, str] = {}
    wrong: set[str] = set()
    connection.send("reading")
    while not stop.is_set():
        # What is listed is what has a manifest; what the pointer names is there.
        listed = [f"{path}/manifest.json" for path in target.versions() if path.startswith("events/")]
        try:
            pointer = json.loads(target.read("events/latest.json"))
            listed.append(f"events/{pointer['manifest']}")
        except FileNotFoundError:
            pass
        for path in listed:
            try:
                manifest = json.loads(target.read(path))
                file = f"{path.rpartition('/')[0]}/{manifest['file']}"
                content = target.read(file)
            except (FileNotFoundError, ValueError) as error:
                wrong.add(f"{path}: {type(error).__name__}")
                continue
            sha256 = hashlib.sha256(content).hexdigest()
            if sha256 != manifest["sha256"] or seen.setdefault(path, sha256) != sha256:
                wrong.add(f"{path}: another content")
    connection.send((len(seen), sorted(wrong)))
