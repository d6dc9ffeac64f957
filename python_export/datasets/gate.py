"""Judges the SQL that dbt ran for an export, and for all that it comes from, before anything of it is published."""

from collections.abc import Iterable
from typing import Any

from lakehouse.pii.check import leaks_on_the_way
from python_export.datasets.declared import Dataset
from python_export.datasets.project import Project
from python_export.datasets.withheld import Fault


def faults(project: Project, datasets: Iterable[Dataset]) -> list[Fault]:
    """Return why datasets must not be published: one of their models lets personal data out, or nobody knows."""
    manifest = _as_run(project)
    models = {node["name"]: name for name, node in manifest["nodes"].items() if node["resource_type"] == "model"}
    chosen = [models[dataset.model] for dataset in datasets]
    # One look at all is enough in the usual case.
    if not leaks_on_the_way(manifest, chosen):
        return []
    return [
        Fault(unique_id, f"it may hold personal data: {problem.message}")
        for unique_id in chosen
        for problem in leaks_on_the_way(manifest, [unique_id])
    ]


def _as_run(project: Project) -> dict[str, Any]:
    """Return dbt's manifest with the SQL that ran last, also of models that the last dbt command left alone."""
    manifest = project.manifest()
    for node in manifest["nodes"].values():
        file = project.target / "compiled" / node["package_name"] / node["original_file_path"]
        if node["resource_type"] == "model" and not node.get("compiled_code") and file.is_file():
            node["compiled_code"] = file.read_text()
    return manifest
