"""Has dbt build and test the export tables for one week, so that what is exported is fresh and has passed its tests."""

import json
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from pyiceberg.catalog import Catalog

from lakehouse.errors import UserError
from lakehouse.weeks import IsoWeek
from python_export import source, spark_sql
from python_export.datasets import Dataset, Project

TIME = re.compile(r"^\d\d:\d\d:\d\d ")
NODE_FAILED = re.compile(r"\d+ of \d+ (?:ERROR|FAIL) .*?(?= \.\.\.|$)")
# dbt's own complaints about the project; the lines that follow, up to an empty one, explain them.
PROJECT_FAILED = ("Compilation Error", "Parsing Error", "Dbt Internal Error", "Could not find profile")


def build(project: Project, datasets: Iterable[Dataset], week: IsoWeek) -> None:
    """Run `dbt build` on the models of some datasets, and on their ancestors.

    Always on these too: when a table was written does not tell whether it was read from before or after records landed.
    Tests run with the build: a table left by a build whose tests failed must not be exported by the next run.

    Raises:
        UserError: the build or a test failed. It names what and, where that quotes no row, why.
    """
    selection = [f"+{dataset.model}" for dataset in datasets]
    _dbt(project, "build", *_for_week(week), "--select", *selection, failed=f"could not build the exports of {week}")


def build_all(project: Project, week: IsoWeek) -> None:
    """Run `dbt build` on the whole project, so that every table holds what has landed and has passed its tests.

    Raises:
        UserError: as of `build`.
    """
    _dbt(project, "build", *_for_week(week), failed=f"could not build {week}")


def parse(project: Project) -> None:
    """Have dbt write its manifest, if there is none yet.

    Raises:
        UserError: the project has a mistake.
    """
    if not project.manifest_path.is_file():
        _dbt(project, "parse", failed="could not read the project")


def _for_week(week: IsoWeek) -> tuple[str, ...]:
    return "--exclude-resource-type", "unit_test", "--vars", json.dumps({"week": str(week)})


def _dbt(project: Project, *arguments: str, failed: str) -> None:
    command = [str(Path(sys.executable).with_name("dbt")), "--no-use-colors", *arguments]
    # Not close_fds: dbt is to hold the weekly job's lock too, see lakehouse.lock.
    finished = subprocess.run(
        command,
        cwd=project.directory,
        env=dict(project.env),
        capture_output=True,
        text=True,
        check=False,
        close_fds=False,
    )
    if finished.returncode:
        lines = problems(finished.stdout) or [f"exit code {finished.returncode}"]
        raise UserError(
            f"dbt {failed}, so nothing is published:\n" + "".join(f"  {line}\n" for line in lines),
            f"dbt's log is {project.log}",
        )


def require_week(catalog: Catalog, datasets: Iterable[Dataset], week: IsoWeek) -> list[source.Source]:
    """Return the datasets' tables.

    Raises:
        UserError: one is missing or holds another week.
    """
    sources = []
    for dataset in datasets:
        found = source.find(catalog, dataset)
        if found is None or found.week != str(week):
            state = "does not exist" if found is None else f"holds {found.week or 'no known week'}"
            raise UserError(
                f"The table of {dataset.model} {state} instead of {week}",
                f"Run `dbt build --select {dataset.model} --vars '{{week: {week}}}'`, or export without --no-build",
            )
        sources.append(found)
    return sources


def problems(output: str) -> list[str]:
    """Return what failed according to dbt's output: nodes, Spark's reasons, complaints about the project.

    Everything else stays out, not only because of its length: it may quote rows.
    """
    found: list[str] = []
    explaining = False
    for line in (TIME.sub("", line).strip() for line in output.splitlines()):
        explaining = bool(line) and (explaining or line.startswith(PROJECT_FAILED))
        if match := NODE_FAILED.match(line):
            found.append(match[0])
        elif spark_sql.EXCEPTION in line:
            found.append(spark_sql.reason(line))
        elif explaining:
            found.append(line)
    return list(dict.fromkeys(found))
