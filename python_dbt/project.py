"""A dbt project: its directory, and what dbt writes."""

import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from python_common.errors import UserError
from python_dbt.manifest import DbtManifest, load


@dataclass(frozen=True)
class Project:
    """A dbt project: its directory and the environment its commands run in."""

    directory: Path
    env: Mapping[str, str] = field(repr=False)

    @property
    def target(self) -> Path:
        """The directory that dbt writes to."""
        return self.directory / (self.env.get("DBT_TARGET_PATH") or "target")

    @property
    def log(self) -> Path:
        """The log file of dbt."""
        return self.directory / (self.env.get("DBT_LOG_PATH") or "logs") / "dbt.log"

    @property
    def manifest_path(self) -> Path:
        """The manifest of dbt, which may not be there yet."""
        return self.target / "manifest.json"

    def commit(self) -> str | None:
        """Return the git commit of the project, marked `-dirty` if files differ from it; None if it is unknown.

        An image has no git: there it is LAKEHOUSE_GIT_COMMIT.
        """
        command = ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
        try:
            finished = subprocess.run(command, cwd=self.directory, capture_output=True, text=True, check=True)
        except (OSError, subprocess.CalledProcessError):
            return self.env.get("LAKEHOUSE_GIT_COMMIT") or None
        return finished.stdout.strip()

    @property
    def results_path(self) -> Path:
        """The results of the last dbt command, which may not be there yet."""
        return self.target / "run_results.json"

    def results(self) -> dict[str, Any]:
        """Return the results of the last dbt command: `results` of nodes, and `metadata`."""
        results: dict[str, Any] = json.loads(self.results_path.read_text())
        return results

    def manifest(self) -> DbtManifest:
        """Return dbt's manifest; a UserError before the first dbt command."""
        if not self.manifest_path.is_file():
            raise UserError(f"There is no dbt manifest at {self.manifest_path}", "Run `dbt build` once")
        return load(self.manifest_path)
