"""Runs of the exporter on a dbt project of two datasets, with the real profile and macros, and a bronze table."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import Catalog

from python_common.catalog.catalog import load_catalog, make_namespace
from python_common.config.environment import PROJECT_ROOT, environment
from python_common.config.settings import Settings
from python_common.weeks import IsoWeek
from python_dbt.project import Project
from python_dbt.run import event_of
from python_export.notify.exported import Exported
from python_export.publishing.publish import Published
from python_export.run import Run
from tests.support import forked
from tests.support.hostile_rows import MONDAY, SCHEMA, arrow_table

WEEK = IsoWeek(2020, 53)
NEXT_WEEK = IsoWeek(2021, 1)
EMPTY_WEEK = IsoWeek(2020, 52)
# The schema of bronze table and export models, in the files of the project.
SCHEMA_NAME = "export_test"
EVENTS_SQL = "models/exports/exp_weekly__events.sql"
EVENTS_YML = "models/exports/exp_weekly__events.yml"
BRONZE = pa.schema(
    [
        *SCHEMA,
        ("kafka_timestamp", pa.timestamp("us", "UTC")),
        ("ingested_at", pa.timestamp("us", "UTC")),
        ("kafka_partition", pa.int32()),
        ("decode_error", pa.string()),
        ("ingest_batch", pa.int64()),
        ("kafka_offset", pa.int64()),
    ]
)


def make_project(settings: Settings, directory: Path) -> Project:
    """Return the project, parsed, in a directory that does not exist; tables of another module's stay."""
    shutil.copytree(Path(__file__).with_name("export_project"), directory)
    for folder in ("macros", "models/docs"):
        shutil.copytree(PROJECT_ROOT / folder, directory / folder)
    shutil.copytree(PROJECT_ROOT / "tests" / "data" / "generic", directory / "tests" / "generic")
    (directory / "models" / "ops").mkdir()
    ops = ("_ops__sources.yml", "ops_topic_weeks.sql", "ops_export_weeks.sql")
    for name in ("profiles.yml", *(f"models/ops/{name}" for name in ops)):
        shutil.copy(PROJECT_ROOT / name, directory / name)
    catalog = load_catalog(settings)
    make_namespace(catalog, SCHEMA_NAME)
    catalog.create_table_if_not_exists((SCHEMA_NAME, "events"), BRONZE)
    project = Project(directory, {**environment(), "DBT_TARGET_PATH": "target", "DBT_LOG_PATH": "logs"})
    run_dbt(project, "parse")
    return project


def run_dbt(project: Project, command: str) -> None:
    assert forked.dbt([command], project.directory, project.env, 300).returncode == 0


def run_in_fork(command: list[str], directory: Path, env: dict[str, str], allowed: float) -> tuple[int, list[Any]]:
    """Start dbt as `run_dbt` does, for `python_dbt.run`."""
    finished = forked.dbt(command[1:], directory, env, allowed)
    return finished.returncode, [event for line in finished.stdout.splitlines() if (event := event_of(line))]


def in_next_week(number: int, note: str = "next week") -> tuple:
    """Return a row on the first instant of the next week, which also moves the watermark to the end of the week."""
    return (number, NEXT_WEEK.start, note, *[None] * 5)


@dataclass(frozen=True)
class Shop:
    """The project, and an export root of its files."""

    settings: Settings
    project: Project

    @property
    def catalog(self) -> Catalog:
        return load_catalog(self.settings)

    def land(self, *rows: tuple, produced: datetime | None = None, ingested: datetime = MONDAY) -> None:
        """Replace the bronze table's rows; each counts as produced when it happened, or at `produced`."""
        landed = [
            (*row, produced or row[1], max(ingested, row[1]), 0, None, 1, offset) for offset, row in enumerate(rows)
        ]
        self.catalog.load_table((SCHEMA_NAME, "events")).overwrite(arrow_table(landed, BRONZE))

    def run(
        self,
        *weeks: IsoWeek,
        names: tuple[str, ...] = ("events",),
        restated: str | None = None,
        with_build: bool = True,
    ) -> Exported:
        """Export weeks, by default WEEK."""
        weeks = weeks or (WEEK,)
        run = Run(self.settings, self.catalog, self.project, Exported(weeks[-1]), weeks, restated=restated)
        run.export(names, with_build)
        return run.exported

    def export(self, week: IsoWeek = WEEK, with_build: bool = True) -> Published:
        """Return the one version of an export that withholds nothing."""
        exported = self.run(week, with_build=with_build)
        assert (exported.withheld, exported.warnings) == ([], [])
        [published] = exported.published
        return published

    def withheld(self, with_build: bool = True, has_issues: bool = True) -> str:
        """Return why an export publishes nothing: issues, or a check of the file. The files stay as they are."""
        files = self.files()
        exported = self.run(with_build=with_build)
        assert (exported.published, exported.has_issues) == ([], has_issues)
        assert self.files() == files
        [issue] = exported.withheld
        assert (issue.object, issue.week, issue.kind) == ("events", "2020-W53", "file")
        return issue.message

    def previewed(self) -> tuple[str, str]:
        """Return why the week is due and what withholds it, as a dry run shows it; it writes nothing."""
        files = self.files()
        run = Run(self.settings, self.catalog, self.project, Exported(WEEK), [WEEK])
        [(dataset, week, why, reason)] = run.preview(["events"])
        assert (dataset, week) == ("events", str(WEEK))
        assert self.files() == files
        return why, reason

    def files(self) -> dict[str, bytes]:
        """Return every public file, by its path under the export root."""
        root = Path(self.settings.export_root)
        files = (path for path in root.rglob("*") if path.is_file() and ".staging" not in path.parts)
        return {str(path.relative_to(root)): path.read_bytes() for path in files}

    def changed(self, **settings: str) -> "Shop":
        """Return the shop with other settings."""
        return replace(self, settings=self.settings.changed(**settings))

    def with_env(self, **env: str) -> "Shop":
        """Return the shop with more variables."""
        return replace(self, project=replace(self.project, env={**self.project.env, **env}))

    @contextmanager
    def edited(self, name: str, old: str, new: str) -> Iterator[None]:
        """Change a file of the project inside the block."""
        file = self.project.directory / name
        before = file.read_text()
        assert old in before
        file.write_text(before.replace(old, new))
        try:
            yield
        finally:
            file.write_text(before)
