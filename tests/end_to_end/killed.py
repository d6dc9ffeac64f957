"""`lakehouse weekly` in a process that kills itself, as by kill -9, at a point that its argument names.

Points after the build run the steps from the export on: the build before is that of another run.
"""

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from lakehouse.cli import main
from python_export import outbox
from python_export import run as export_run
from weekly_job import steps


def die(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def only_from_the_export_on() -> None:
    for name in ("ingest", "verify", "complete", "build", "reconcile"):
        del steps.STEPS[name]


def after_the_first_batch() -> None:
    steps._Notes.landed = die


def after_two_versions() -> None:
    publish: Callable[..., Any] = export_run.publish
    done = []

    def publish_and_die(*arguments: Any) -> Any:
        done.append(publish(*arguments))
        if len(done) == 2:
            die()
        return done[-1]

    export_run.publish = publish_and_die


def after_the_mail() -> None:
    only_from_the_export_on()
    outbox.settle = die


POINTS = {
    "ingest": after_the_first_batch,
    "publish": after_two_versions,
    "notify": after_the_mail,
    "nowhere": only_from_the_export_on,
}

if __name__ == "__main__":
    POINTS[sys.argv[1]]()
    sys.argv[1:] = ["weekly"]
    main()
