"""What a change does to what readers rely on: columns, keys, grain, tests, descriptions, personal data."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from python_dbt.manifest import REFERENCED, DbtManifest, Node
from python_dbt.pii import check, declared, proof
from python_dbt.pii.masks import AS_IS

Severity = Literal["note", "look", "breaking"]
# In the order in which a report shows them.
SEVERITIES: tuple[Severity, ...] = ("breaking", "look", "note")


@dataclass(frozen=True)
class Finding:
    """Something that a change does; `object` is the name of a model, test or hook, and what of it."""

    severity: Severity
    object: str
    message: str


def findings(before: DbtManifest, after: DbtManifest) -> list[Finding]:
    """Compare the declarations of two compiled manifests, and what is proven of personal data."""
    unsorted = [*_personal_data(before, after)]
    for unique_id in sorted(before.nodes.keys() | after.nodes.keys()):
        old, new = before.nodes.get(unique_id), after.nodes.get(unique_id)
        if old and new:
            if new.resource_type in REFERENCED:
                keys = [", ".join(key(*side)) or "missing" for side in ((old, before), (new, after))]
                unsorted += _contract(old, new, *keys)
        elif old and old.resource_type in REFERENCED:
            unsorted.append(Finding("breaking" if is_public(old) else "look", old.name, f"{old.resource_type} removed"))
        elif old and old.resource_type == "test":
            unsorted.append(Finding("look", old.name, "test removed"))
        elif new and new.resource_type in REFERENCED:
            unsorted += [Finding("look", new.name, f"{new.resource_type} added"), *_undescribed(None, new)]
    return sorted(unsorted, key=lambda finding: (SEVERITIES.index(finding.severity), finding.object, finding.message))


def differing(before: Mapping[str, object], after: Mapping[str, object]) -> list[str]:
    """Return the keys whose values differ, or that are on one side alone."""
    return sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))


def is_public(node: Node) -> bool:
    """Return whether readers outside of the project may rely on a node."""
    return node.config.get("access") == "public" or node.is_export


def key(node: Node, manifest: DbtManifest) -> list[str]:
    """Return the columns that identify a row: of an export, a unique_key, or a test; none if nothing names them."""
    tests = [test for test in manifest.nodes.values() if test.attached_node == node.unique_id]
    declared = [
        node.meta.get("export", {}).get("key"),
        node.unique_key,
        *(test.test_arguments.get("columns") for test in tests if test.test_name == "unique_together"),
        *(test.column_name for test in tests if test.test_name == "unique"),
    ]
    columns: str | list[str] = next((columns for columns in declared if columns), [])
    return [columns] if isinstance(columns, str) else columns


def _contract(old: Node, new: Node, key_before: str, key_after: str) -> Iterator[Finding]:
    severity: Severity = "breaking" if is_public(old) else "look"
    yield from _columns(old, new, severity)
    yield from _undescribed(old, new)
    if new.is_export:
        yield from _files(old, new)
    if old.grain != new.grain:
        yield Finding("look", new.name, f'grain "{old.grain}" becomes "{new.grain}"')
    was_enforced, is_enforced = (bool((node.config.get("contract") or {}).get("enforced")) for node in (old, new))
    if was_enforced and not is_enforced:
        yield Finding(severity, new.name, "contract no longer enforced")
    if is_public(old) and not is_public(new):
        yield Finding("breaking", new.name, "no longer public")
    if key_before != key_after:
        yield Finding(severity, new.name, f"key {key_before} becomes {key_after}")


def _columns(old: Node, new: Node, severity: Severity) -> Iterator[Finding]:
    for name in old.columns.keys() - new.columns.keys():
        yield Finding(severity, f"{new.name}.{name}", "column removed")
    for name in new.columns.keys() - old.columns.keys():
        yield Finding("look", f"{new.name}.{name}", "column added")
    for name in old.columns.keys() & new.columns.keys():
        before, after = old.columns[name], new.columns[name]
        if before.data_type != after.data_type:
            yield Finding(severity, f"{new.name}.{name}", f"type {before.data_type} becomes {after.data_type}")
        required = [{constraint.type for constraint in column.constraints} for column in (before, after)]
        for constraint in required[0] - required[1]:
            yield Finding(severity, f"{new.name}.{name}", f"no longer promises {constraint}")
        for constraint in required[1] - required[0]:
            yield Finding("look", f"{new.name}.{name}", f"promises {constraint}")


def _files(old: Node, new: Node) -> Iterator[Finding]:
    """Yield what decides on files: positions of columns, order, audience, suppressed rows, search for personal data."""
    shared = [name for name in old.columns if name in new.columns]
    if [*new.columns][: len(shared)] != shared:
        yield Finding("breaking", new.name, "columns move: only a new last one moves no other")
    pairs = {new.name: (old.meta.get("export", {}), new.meta["export"])}
    pairs |= {f"{new.name}.{name}": (old.column_meta(name), new.column_meta(name)) for name in shared}
    for name, (before, after) in pairs.items():
        if changed := differing(before, after):
            yield Finding("look", name, f"config.meta changes: {', '.join(changed)}")


def _undescribed(old: Node | None, new: Node) -> Iterator[Finding]:
    for name, column in new.columns.items() if is_public(new) else ():
        if not column.description and (old is None or name not in old.columns or old.columns[name].description):
            yield Finding("look", f"{new.name}.{name}", "column without description")


def _personal_data(before: DbtManifest, after: DbtManifest) -> Iterator[Finding]:
    """Yield leaks that are new, and classified columns that reach a readable column for the first time, or no more."""
    if (before.nodes, before.sources) == (after.nodes, after.sources):
        return
    lineages = [proof.resolve(manifest) for manifest in (before, after)]
    known = {issue.message for issue in check.issues_of(lineages[0])}
    # By the classes before the change, too: a class that is removed hides what leaks.
    formerly = proof.resolve(declared.with_former_classes(*lineages))
    new_issues = {issue.message for issue in (*check.issues_of(lineages[1]), *proof.leaks(formerly))}
    yield from (Finding("breaking", "personal data", message) for message in new_issues - known)
    for node, name, _ in lineages[1].staging_columns():
        was, pii = (one.column_meta(name).get("pii") for one in (formerly.manifest.nodes[node.unique_id], node))
        if was != pii:
            is_leak = pii in (None, AS_IS)
            message = f"{'leak: ' if is_leak else ''}PII class {was} becomes {pii or 'missing'}"
            yield Finding("breaking" if is_leak else "look", f"{node.name}.{name}", message)
    old, new = map(_paths, lineages)
    for name in new:
        for column, pii, mask in sorted(new[name] - old.get(name, set())):
            yield Finding("look", f"{name}.{column}", f"{pii} reaches it, {mask}")
        for column, pii, mask in sorted(old.get(name, set()) - new[name]):
            yield Finding("note", f"{name}.{column}", f"{pii} no longer reaches it, {mask}")


def impersonal_columns(*sides: DbtManifest) -> dict[str, set[str]]:
    """Return by readable node the columns that no class reaches on any side, not even masked."""
    impersonal: dict[str, set[str]] = {}
    for side in sides:
        for node, relation in proof.resolve(side).readable():
            columns = {column for column, flows in relation.columns if not flows}
            impersonal[node.name] = columns & impersonal.get(node.name, columns)
    return impersonal


def _paths(lineage: proof.Lineage) -> dict[str, set[tuple[str, str, str]]]:
    """Return by readable node the columns that a class reaches, the class, and how."""
    return {
        node.name: {
            (column, flow.pii, f"masked as {flow.mask}" if flow.mask else "raw")
            for column, flows in relation.columns
            for flow in flows
        }
        for node, relation in lineage.readable()
    }
