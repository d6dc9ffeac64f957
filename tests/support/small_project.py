"""A dbt project of a test, which borrows the macros of this one."""

import json
import subprocess
from pathlib import Path
from typing import Any

import yaml

from python_common.config.environment import PROJECT_ROOT
from tests.support.two_exports import node


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
