"""Has dbt build and test the export tables for some weeks, so that what is exported is fresh and was tested."""

import json
import subprocess
import sys
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from python_common.config.settings import from_environment
from python_common.errors import DeadlineError, Issue, UserError
from python_common.locks.lease import held_number
from python_common.log import log
from python_common.spark import spark_sql, thrift
from python_common.weeks import IsoWeek
from python_dbt.project import Project

# Less than deadline.STEP_SECONDS, so that the error of a build that hangs names dbt.
BUILD_SECONDS = 12 * 3600.0
# Events of dbt: a table, view or seed is made; the command, or a node of it, failed.
NODE_EVENTS = ("LogModelResult", "LogSeedResult", "LogSnapshotResult")
WHY_FAILED = {"MainEncounteredError": "exc", "RunResultError": "msg"}
FAILED = ("error", "fail", "runtime error")
# What Iceberg raises if another writer has changed a table since a statement read it.
CONFLICTS = ("CommitFailedException", "ValidationException")
FIGURES = "ops_weekly_figures"
"""The model of the figures of all weeks. It is built without weeks."""
FIGURES_TABLE = "ops.weekly_figures"
# Where dbt reads the project from, besides dbt_project.yml.
SOURCES = ("models", "macros", "seeds", "snapshots")
# How dbt's complaints about the project begin.
PROJECT_FAILED = ("Compilation Error", "Parsing Error", "Dbt Internal Error", "Could not find profile")


def build(
    project: Project, models: Iterable[str], weeks: Sequence[IsoWeek], with_ancestors: bool = True
) -> list[Issue]:
    """Run `dbt build` on some models, for some weeks, and return what failed.

    With the ancestors: a table's age does not show whether it was built before or after records landed.
    Tests run with the build: a table left by a build whose tests failed must not be exported by the next run. A test
    that also reads a model which is not built is not run.

    Raises:
        UserError: dbt could not begin. It names why, where that quotes no row.
    """
    prefix = "+" if with_ancestors else ""
    return build_all(project, weeks, "--select", *(f"{prefix}{name}" for name in dict.fromkeys(models)))


def rerun(project: Project, weeks: Sequence[IsoWeek], *models: str) -> None:
    """Run some models alone, on their inputs as they are, and none of their tests; a UserError if one fails."""
    _dbt(project, "run", "--select", *models, weeks=weeks, failed=f"could not run {' and '.join(models)}")


def rebuild(project: Project, *selection: str) -> None:
    """Build what is selected from all its input, none of its tests; a UserError if a model fails."""
    failed = "could not rebuild everything: the erasure waits"
    _dbt(project, "run", "--full-refresh", "--select", *selection, failed=failed)


def build_all(project: Project, weeks: Sequence[IsoWeek], *selection: str) -> list[Issue]:
    """Run `dbt build` on the whole project, or on what is selected; returns and raises as `build`."""
    return _issues(project, weeks, "build", "--exclude-resource-type", "unit_test", *selection)


def test(project: Project, weeks: Sequence[IsoWeek], *selection: str) -> list[Issue]:
    """Run `dbt test` on what is selected, unit tests included; returns and raises as `build`."""
    return _issues(project, weeks, "test", *selection)


def _issues(project: Project, weeks: Sequence[IsoWeek], command: str, *arguments: str) -> list[Issue]:
    project.results_path.unlink(missing_ok=True)
    try:
        what = ", ".join(map(str, weeks)) or FIGURES
        _dbt(project, command, *arguments, weeks=weeks, failed=f"could not {command} {what}")
    except DeadlineError:
        raise
    except UserError:
        # A server that is gone is reported as that, and not as an issue of what it should build.
        with thrift.connect(from_environment(project.env)):
            pass
        issues = failures(project) if project.results_path.is_file() else []
        # Nothing was built if a hook failed, or the project cannot be read.
        if not issues:
            raise
        return issues
    return []


def failures(project: Project) -> list[Issue]:
    """Return what failed in dbt's last command, at the nodes that are not to be trusted then.

    A test that is attached to no model counts for all that it reads. What was skipped comes from what failed.

    Raises:
        UserError: a hook failed, so that nothing was built.
    """
    manifest = project.manifest()
    nodes = {**manifest.nodes, **manifest.unit_tests}
    results = {result["unique_id"]: result for result in project.results()["results"] if result["unique_id"] in nodes}
    issues = []
    for unique_id, result in results.items():
        node = nodes[unique_id]
        if result["status"] not in FAILED:
            continue
        if node.resource_type == "operation":
            raise UserError(f"The hook {node.name} of the dbt project failed", f"dbt's log is {project.log}")
        if node.resource_type in ("test", "unit_test"):
            object_ids = [node.attached_node] if node.attached_node else node.parents
            reason = f"test {node.name} failed"
        else:
            object_ids, reason = [unique_id], f"{node.name} could not be built ({_why(result['message'] or '')})"
        issues += [Issue(reason, object=object_id, kind="build") for object_id in object_ids]
    failed = {issue.object for issue in issues}
    for unique_id, result in results.items():
        if result["status"] == "skipped" and failed.isdisjoint(manifest.ancestors(unique_id)):
            issues.append(Issue(f"{nodes[unique_id].name} was skipped", object=unique_id, kind="build"))
    return issues


def _why(message: str) -> str:
    """Return why a model failed: dbt's complaints about the project as they are, Spark's without values."""
    text = " ".join(message.removeprefix("Runtime Error").split())
    if text.startswith(PROJECT_FAILED):
        return text
    return _spark_reason(message)


def _spark_reason(message: str) -> str:
    """Return why Spark failed, without values; for a conflict of two builds with the remedy."""
    reason = spark_sql.reason(message)
    if reason not in CONFLICTS:
        return reason
    return f"{reason}: another build wrote the table at the same time, and its rows stay; run the command again"


def parse(project: Project, always: bool = False) -> None:
    """Have dbt write its manifest, if it is missing or outdated, or `always`; a UserError if the project is wrong."""
    if always or _is_outdated(project):
        _dbt(project, "parse", failed="could not read the project")


def _is_outdated(project: Project) -> bool:
    if not project.manifest_path.is_file():
        return True
    written = project.manifest_path.stat().st_mtime
    sources = (path for folder in SOURCES for path in (project.directory / folder).rglob("*"))
    return any(path.stat().st_mtime > written for path in (project.directory / "dbt_project.yml", *sources))


def invocation(project: Project) -> str:
    """Return the id of dbt's last command, which is in the summaries of the snapshots that it has written."""
    return str(project.results()["metadata"]["invocation_id"])


def _dbt(project: Project, *arguments: str, failed: str, weeks: Sequence[IsoWeek] = ()) -> None:
    command = [str(Path(sys.executable).with_name("dbt")), "--log-format", "json", *arguments]
    env = {
        **project.env,
        # No var: for another value of one, dbt parses the whole project again.
        "LAKEHOUSE_WEEKS": ",".join(map(str, weeks)),
        "LAKEHOUSE_GIT_COMMIT": project.commit() or "",
        "LAKEHOUSE_LEASE": held_number("weekly"),
    }
    code, events = _run(command, project.directory, env, BUILD_SECONDS)
    if code is None:
        raise DeadlineError(f"dbt {arguments[0]}", BUILD_SECONDS)
    if code:
        lines = errors(events) or [f"exit code {code}"]
        raise UserError(
            f"dbt {failed}, so nothing is published:\n" + "".join(f"  {line}\n" for line in lines),
            f"dbt's log is {project.log}",
        )


def _run(
    command: list[str], directory: Path, env: dict[str, str], allowed: float
) -> tuple[int | None, list[dict[str, Any]]]:
    """Run dbt, log each table that it has made, and return its exit code, None after `allowed` seconds, and events."""
    events = []
    is_late = threading.Event()
    # Not close_fds: dbt must hold the weekly job's lock too, see python_common.locks.lock.
    with subprocess.Popen(
        command,
        cwd=directory,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        close_fds=False,
    ) as process:

        def end() -> None:
            is_late.set()
            process.kill()

        timer = threading.Timer(allowed, end)
        timer.start()
        try:
            for line in process.stdout or ():
                if event := event_of(line):
                    events.append(event)
                    _log_made(event)
            process.wait()
        except BaseException:  # a signal, or the step took too long
            process.kill()
            raise
        finally:
            timer.cancel()
    return None if is_late.is_set() else process.returncode, events


def event_of(line: str) -> dict[str, Any] | None:
    """Return the event of a line of dbt's output; None for what Python or a driver prints there."""
    try:
        event: dict[str, Any] = json.loads(line)
        return event if {"info", "data"} <= event.keys() else None
    except (ValueError, AttributeError):
        return None


def _log_made(event: dict[str, Any]) -> None:
    """Log that a node was made; an unchanged one was not."""
    data = event["data"]
    is_unchanged = "unchanged" in (data.get("status"), data.get("result_message"))
    if event["info"]["name"] in NODE_EVENTS and event["info"]["level"] == "info" and not is_unchanged:
        relation = data["node_info"]["node_relation"]
        log.info("dbt: %s of %s %s.%s", data["index"], data["total"], relation["schema"], relation["alias"])


def errors(events: Iterable[dict[str, Any]]) -> list[str]:
    """Return why nodes failed, or dbt itself, by its events, without values of rows."""
    lines = []
    for event in events:
        if key := WHY_FAILED.get(event["info"]["name"]):
            node, why = event["data"].get("node_info", {}).get("node_name"), _why(event["data"][key])
            lines.append(f"{node}: {why}" if node else why)
    return list(dict.fromkeys(lines))
