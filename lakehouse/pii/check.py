"""`lakehouse check pii`: declarations, lineage and, where there is a catalog, what has really landed."""

from collections.abc import Collection, Iterable
from pathlib import Path

from pyiceberg.catalog import Catalog

from lakehouse.environment import PROJECT_ROOT
from lakehouse.errors import UserError
from lakehouse.manifest import DbtManifest, load
from lakehouse.pii import beside, declared, masks, proof, quasi
from lakehouse.pii.compile import compiled_manifest
from lakehouse.pii.declared import Unknown
from lakehouse.pii.masks import Masks
from lakehouse.pii.problem import Problem

MACROS = masks.MACROS


def problems(manifest: DbtManifest, known_masks: Masks) -> list[Problem]:
    """Return what is wrong with a compiled project."""
    project = proof.trace(manifest, known_masks)
    return [
        *declared.unmapped(manifest, project),
        *declared.of_two_classes(manifest, project),
        *quasi.unlabelled(manifest, known_masks),
        *declared.without_subjects(manifest, project),
        *_problems_of_models(manifest, project, known_masks),
    ]


def _problems_of_models(manifest: DbtManifest, project: proof.Project, known_masks: Masks) -> list[Problem]:
    return [
        *declared.unclassified(manifest, known_masks),
        *declared.undeclared(manifest, project),
        *project.problems,
        *proof.leaks(manifest, project, known_masks),
        *proof.counted(manifest, project, known_masks),
        *proof.mislabelled(manifest, project),
        *beside.problems(manifest),
    ]


def check(catalog: Catalog | None = None, target: Path | None = None) -> int:
    """Check the project and return how many models were followed.

    `target` is the directory of a `dbt build` whose SQL is checked as it ran; without one the project is compiled
    without a warehouse. With a catalog the fields of the bronze tables are checked too.

    Raises:
        UserError: something is wrong; it names each thing and its remedy.
    """
    known_masks = masks.load(MACROS)
    if target and not (target / "manifest.json").is_file():
        raise UserError(f"There is no manifest.json in {target}", "Name the target directory of a `dbt build`")
    manifest = load(target / "manifest.json") if target else compiled_manifest(PROJECT_ROOT)
    found = problems(manifest, known_masks)
    if catalog is not None:
        found += [field.problem for field in declared.unknown(manifest, catalog)]
    require_none(found)
    return len(manifest.models)


def leaks_on_the_way(manifest: DbtManifest, unique_ids: Collection[str]) -> list[Problem]:
    """Return what is wrong with some models and all that they come from, in the SQL that dbt ran.

    dbt may have run these alone, so nothing is asked of others.
    """
    wanted = {*unique_ids, *manifest.ancestors(*unique_ids)}
    part = DbtManifest(
        {name: node for name, node in manifest.nodes.items() if name in wanted or node.resource_type == "operation"},
        {name: source for name, source in manifest.sources.items() if name in wanted},
        manifest.macros,
    )
    known_masks = masks.load(MACROS)
    return _problems_of_models(part, proof.trace(part, known_masks), known_masks)


def require_classified(manifest: DbtManifest, catalog: Catalog, strict: bool = True) -> list[Unknown]:
    """Check what data can change without a change of code, and return the fields that landed and nobody classified.

    No model reads such a field, so that only a strict check refuses it.

    Raises:
        UserError: a staging column has no class, or the check is strict and there are such fields.
    """
    known_masks = masks.load(MACROS)
    unknown = list(declared.unknown(manifest, catalog))
    require_none([*declared.unclassified(manifest, known_masks), *(field.problem for field in unknown if strict)])
    return unknown


def require_none(found: Iterable[Problem]) -> None:
    """Raise one error for all problems, if there are any."""
    lines = [f"  {problem.message}. {problem.remedy}." for problem in found]
    if lines:
        raise UserError(
            f"Personal data is not safe, {len(lines)} {'things' if len(lines) > 1 else 'thing'} to correct:\n"
            + "\n".join(lines)
            + "\n",
            "See docs/privacy.md",
        )
