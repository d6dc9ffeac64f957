"""`lakehouse check pii`: declarations, column lineage and, with a catalog, the fields that landed."""

from collections.abc import Collection, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from python_common.config.environment import PROJECT_ROOT
from python_common.errors import Issue, UserError
from python_dbt.compile import NotCompiled, compiled_manifest
from python_dbt.manifest import DbtManifest, load
from python_dbt.pii import declared, hooks, proof
from python_dbt.pii.declared import UndeclaredField

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog


def issues_of(lineage: proof.Lineage) -> list[Issue]:
    """Check the lineage of a compiled project."""
    return [
        *declared.unmapped(lineage),
        *declared.conflicting_classes(lineage),
        *declared.unlabelled_quasi_identifiers(lineage.manifest),
        *declared.missing_subjects(lineage),
        *_issues_of_models(lineage),
    ]


def _issues_of_models(lineage: proof.Lineage) -> list[Issue]:
    return [
        *declared.unclassified(lineage.manifest),
        *declared.broken_promises(lineage.manifest),
        *declared.undeclared_columns(lineage),
        *lineage.issues,
        *proof.leaks(lineage),
        *proof.counted(lineage),
        *proof.mislabelled(lineage),
        *hooks.issues(lineage.manifest),
    ]


def check(catalog: "Catalog | None" = None, target: Path | None = None) -> int:
    """Check the project and return how many models were followed.

    `target` is the directory of a `dbt build` whose SQL is checked as it ran; without one the project is compiled
    without a warehouse. With a catalog the fields of the bronze tables are checked too.

    Raises:
        UserError: something is wrong; it names each thing and its remedy.
    """
    if target and not (target / "manifest.json").is_file():
        raise UserError(f"There is no manifest.json in {target}", "Name the target directory of a `dbt build`")
    try:
        manifest = load(target / "manifest.json") if target else compiled_manifest(PROJECT_ROOT)
    except NotCompiled as error:
        # dbt names the first column whose class masked() lacks.
        require_none(declared.unclassified(error.parsed))
        raise
    issues = issues_of(proof.resolve(manifest))
    if catalog is not None:
        issues += [field.issue for field in declared.undeclared_fields(manifest, catalog)]
    require_none(issues)
    return len(manifest.models)


def issues_upstream(manifest: DbtManifest, unique_ids: Collection[str]) -> list[Issue]:
    """Return what is wrong with some models and all that they come from, in the SQL that dbt ran.

    dbt may have run these alone, so nothing is asked of others.
    """
    wanted = {*unique_ids, *manifest.ancestors(*unique_ids)}
    part = DbtManifest(
        {name: node for name, node in manifest.nodes.items() if name in wanted or node.resource_type == "operation"},
        {name: source for name, source in manifest.sources.items() if name in wanted},
        manifest.macros,
    )
    return _issues_of_models(proof.resolve(part))


def require_classified(manifest: DbtManifest, catalog: "Catalog") -> list[UndeclaredField]:
    """Check what data can change without a change of code, and return the fields that landed without a class.

    No model reads such a field, so that only `check` refuses it.

    Raises:
        UserError: a staging column has no class.
    """
    require_none(declared.unclassified(manifest, with_types=False))
    return list(declared.undeclared_fields(manifest, catalog))


def require_none(issues: Iterable[Issue]) -> None:
    """Raise one error that names all issues, if there are any."""
    lines = [f"  {issue.message}. {issue.remedy}." for issue in issues]
    if lines:
        raise UserError(
            f"Personal data is not safe, {len(lines)} {'things' if len(lines) > 1 else 'thing'} to correct:\n"
            + "\n".join(lines)
            + "\n",
            "See docs/privacy.md",
        )
