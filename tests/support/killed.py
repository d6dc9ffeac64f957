"""`lakehouse weekly` in a process that kills itself, as by kill -9, in the step that its first argument names.

To be quick, a run skips steps whose work one before has done: a build is made once. A second argument has it run
all steps.
"""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from pyiceberg.catalog import Catalog

from python_dbt.run import build_all
from python_export import run as export_run
from python_export.notify import outbox, page
from python_ingest.landing import run
from python_jobs.cli import main
from python_jobs.weekly import steps


def die(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def only(*names: str) -> None:
    if len(sys.argv) > 2:
        return
    for name in steps.STEPS.keys() - names:
        del steps.STEPS[name]


def die_at_the_second(owner: Any, name: str) -> None:
    """Have the process die when a function has returned twice."""
    function: Callable[..., Any] = getattr(owner, name)
    calls = 0

    def call_and_die(*arguments: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        result = function(*arguments, **options)
        if calls == 2:
            die()
        return result

    setattr(owner, name, call_and_die)


def after_the_first_batch() -> None:
    run.Reporter.landed = die


def after_two_verified_topics() -> None:
    only("ingest", "verify")
    die_at_the_second(steps, "verify_topic")


def before_the_topics_are_read() -> None:
    only("complete")
    steps.Exporter.read_topics = die


def after_the_first_table() -> None:
    only("build")

    def build_and_die(*arguments: Any) -> None:
        project = arguments[0]
        # A part of the build is enough; the dbt of it goes on without its parent.
        part = ("--select", "path:models/staging", "path:models/intermediate/deduplicated")
        building = threading.Thread(target=build_all, args=(*arguments, *part))
        building.start()
        while building.is_alive():
            if project.log.is_file() and "OK created sql incremental model" in project.log.read_text():
                die()
            time.sleep(0.1)
        raise AssertionError("no table was built")

    steps.dbt.build_all = build_and_die


def before_the_numbers_are_read() -> None:
    only("complete", "build", "reconcile")
    steps.load_table = die


def after_two_versions() -> None:
    only("complete", "export")
    die_at_the_second(export_run, "publish")


def before_the_page_is_written() -> None:
    only("export", "report")
    page.report_path = die


def after_the_mail() -> None:
    only("complete", "export", "notify")
    mark_delivered: Callable[..., None] = outbox.mark_delivered

    def mark_or_die(catalog: Catalog, group: list[outbox.Entry], channel: str) -> None:
        if group[0].kind == outbox.VERSION:
            die()
        mark_delivered(catalog, group, channel)

    outbox.mark_delivered = mark_or_die


POINTS = {
    "ingest": after_the_first_batch,
    "verify": after_two_verified_topics,
    "complete": before_the_topics_are_read,
    "build": after_the_first_table,
    "reconcile": before_the_numbers_are_read,
    "export": after_two_versions,
    "report": before_the_page_is_written,
    "notify": after_the_mail,
}

if __name__ == "__main__":
    if sys.argv[1:] == ["nowhere"]:
        only("complete", "export", "report", "notify")
    else:
        POINTS[sys.argv[1]]()
    sys.argv[1:] = ["weekly"]
    main()
