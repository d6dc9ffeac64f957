"""Checks the SQL that dbt ran for an export, and for all that it comes from, before anything of it is published."""

import hashlib
import re
from collections.abc import Iterable
from dataclasses import replace

from python_common.catalog import property_keys
from python_common.errors import UserError
from python_dbt.manifest import DbtManifest
from python_dbt.pii.check import issues_upstream
from python_dbt.project import Project
from python_export.datasets.declared import Dataset
from python_export.datasets.snapshot import Source

# The weeks that a run names.
WEEKS = re.compile(r"'[0-9]{4}-W[0-9]{2}'(, '[0-9]{4}-W[0-9]{2}')*")


def reasons(project: Project, datasets: Iterable[Dataset]) -> dict[str, str]:
    """Return why datasets must not be published: one of their models lets personal data out, or that is not proven."""
    manifest = _as_run(project)
    chosen = {dataset.name: manifest.named(dataset.model).unique_id for dataset in datasets}
    # One look at all is enough in the usual case.
    if not issues_upstream(manifest, chosen.values()):
        return {}
    found = {name: issues_upstream(manifest, [unique_id]) for name, unique_id in chosen.items()}
    return {
        name: "; ".join(f"it may hold personal data: {issue.message}" for issue in issues)
        for name, issues in found.items()
        if issues
    }


def require_proven(project: Project, source: Source) -> None:
    """Refuse a tested week unless the SQL that `reasons` checks has made it (macros/tag_tested.sql notes its hash).

    Raises:
        UserError: other SQL made it, or its build did not include all that it comes from.
    """
    manifest, model = _as_run(project), source.dataset.model
    unique_id = manifest.named(model).unique_id
    lineage = sorted(name for name in (unique_id, *manifest.ancestors(unique_id)) if name.startswith("model."))
    compiled = (WEEKS.sub("", manifest.nodes[name].compiled_code or "") for name in lineage)
    text = "\n".join(f"{name}\n{sql}" for name, sql in zip(lineage, compiled, strict=True))
    proven = f"{source.snapshot_id}/{hashlib.sha256(text.encode()).hexdigest()}"
    if source.table.properties.get(f"{property_keys.SQL}{source.week}") != proven:
        raise UserError(
            f"{model} was not built for {source.week} from the SQL in {project.target / 'compiled'}",
            f"Run `dbt build --select +{model} --vars '{{week: {source.week}}}'`, or export without --no-build",
        )


def _as_run(project: Project) -> DbtManifest:
    """Return dbt's manifest with the SQL that ran last, also of models that the last dbt command left alone."""
    manifest = project.manifest()
    for node in manifest.models:
        file = project.target / "compiled" / node.package_name / node.original_file_path
        if not node.compiled_code and file.is_file():
            manifest.nodes[node.unique_id] = replace(node, compiled_code=file.read_text())
    return manifest
