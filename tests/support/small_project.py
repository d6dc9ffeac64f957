"""dbt projects of tests: a copy of this one, and small ones that borrow its macros."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import yaml

from python_common.config.environment import PROJECT_ROOT
from python_dbt.compile import COPIED
from tests.support.two_exports import node


def copy_project(directory: Path) -> None:
    """Copy what dbt and its linters read of this project."""
    for name in (*COPIED, "analyses", "macros"):
        shutil.copytree(PROJECT_ROOT / name, directory / name)
    for name in (".sqlfluff", ".yamllint.yaml", "dbt-bouncer.yml", "dbt_project.yml", "profiles.yml"):
        shutil.copy(PROJECT_ROOT / name, directory / name)


def copy_checkout(directory: Path) -> None:
    """Copy all files that git has of this project, or would take."""
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    for name in subprocess.check_output(listed, cwd=PROJECT_ROOT, text=True).splitlines():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(PROJECT_ROOT / name, directory / name)


def write_small_project(directory: Path, **settings: object) -> None:
    """Write a dbt project of no models yet that borrows the project's macros and builds in schema `small`."""
    project = {
        "name": "small",
        "profile": "retail_lakehouse",
        "macro-paths": [str(PROJECT_ROOT / "macros")],
        "models": {"+schema": "small", "+file_format": "iceberg"},
        **settings,
    }
    (directory / "dbt_project.yml").write_text(yaml.safe_dump(project))
    (directory / "models").mkdir()


def git(directory: Path, *arguments: str) -> None:
    """Run git in a directory, as somebody."""
    names = ("-c", "user.name=test", "-c", "user.email=test@example.com")
    subprocess.run(["git", *names, *arguments], cwd=directory, check=True, capture_output=True)


def write_manifest(directory: Path, schema: str, metas: dict[str, Any]) -> None:
    """Write a manifest of dbt that has models of a schema, by their names, with their config.meta."""
    nodes = [node(name, **meta) | {"schema": schema} for name, meta in metas.items()]
    (directory / "manifest.json").write_text(json.dumps({"nodes": {one["unique_id"]: one for one in nodes}}))
