"""What hangs ends: steps, statements and dbt; and the error names what hung."""

import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from python_common.config.settings import Settings
from python_common.deadline import step_within
from python_common.errors import DeadlineError, UserError
from python_common.spark import spark_sql, thrift
from python_common.weeks import IsoWeek
from python_dbt import run
from python_dbt.project import Project
from tests.support.race import hanging_dbt

pytestmark = pytest.mark.integration


def test_a_step_that_hangs_ends() -> None:
    """Whatever it waits for: here a queue that no handler of errors, and no clean-up, ends."""
    with pytest.raises(DeadlineError, match="build has not ended within 1 s"), step_within("build", 0.2):
        try:
            threading.Event().wait()
        except Exception:
            threading.Event().wait()


def test_a_step_whose_clean_up_hangs_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("python_common.deadline.AGAIN_SECONDS", 0.2)
    release = threading.Event()
    with pytest.raises(DeadlineError), step_within("ingest", 0.2), ThreadPoolExecutor(1) as pool:
        pool.submit(release.wait)
        threading.Event().wait()
    release.set()


def test_a_step_in_time_is_left_alone() -> None:
    with step_within("build", 0.1):
        pass
    time.sleep(0.2)


def test_a_server_that_is_silent_is_not_waited_for_for_ever(
    offline_settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(thrift, "STATEMENT_SECONDS", 0.2)
    monkeypatch.setattr(thrift, "GRACE_SECONDS", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        settings = offline_settings.changed(thrift_port=silent.getsockname()[1])
        with pytest.raises(UserError, match="does not answer"), thrift.connect(settings):
            pass


def test_a_dbt_that_hangs_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pid = hanging_dbt(tmp_path, monkeypatch)
    monkeypatch.setattr(run, "BUILD_SECONDS", 1.0)
    project = Project(tmp_path, {"PATH": "/usr/bin:/bin"})
    with pytest.raises(DeadlineError, match="dbt build has not ended within 1 s"):
        run.build_all(project, [IsoWeek(2020, 53)])
    assert not psutil.pid_exists(int(pid.read_text()))


@pytest.mark.slow
def test_a_statement_that_takes_too_long_is_ended(stack: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thrift, "STATEMENT_SECONDS", 10.0)
    forever = "select count(*) from range(1000000000000) where sqrt(id) = -1"
    with (
        pytest.raises(DeadlineError, match="has not ended within 10 s"),
        thrift.connect(stack) as cursor,
    ):
        spark_sql.run(cursor, forever, "count for ever")
    # The server has ended it too, and works for others; on a busy machine not at once.
    monkeypatch.undo()
    with thrift.connect(stack) as cursor:
        assert thrift.rows(cursor, "select 1") == [(1,)]
