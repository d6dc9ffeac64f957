"""What a change does to what readers rely on: columns, keys, grain, tests, descriptions, personal data."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from python_dbt.manifest import REFERENCED, DbtManifest, Node
from python_dbt.pii import check, declared, masks, proof
from python_dbt.pii.flows import LANDED, RESTRICTED, STAGING, Flows
from python_dbt.pii.masks import AS_IS
from python_dbt.pii.origins import as_classified, by_value

Severity = Literal["note", "look", "breaking"]
# In the order in which a report shows them.
SEVERITIES: tuple[Severity, ...] = ("breaking", "look", "note")
LEAK = "leak: "
# How many names a line has.
NAMED = 5
# By name of node, column and class: how the class reaches the column.
Paths = dict[tuple[str, str, str], set[str]]


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
        elif new and new.resource_type == "test":
            unsorted.append(Finding("note", new.name, "test added"))
        elif new and new.resource_type in REFERENCED:
            unsorted += [Finding("look", new.name, f"{new.resource_type} added"), *_undescribed(None, new)]
    return sorted(
        unsorted,
        # A class that is gone is the reason of what leaks.
        key=lambda finding: (
            SEVERITIES.index(finding.severity),
            not finding.message.startswith(LEAK),
            finding.object,
            finding.message,
        ),
    )


def few(names: Iterable[str]) -> str:
    """Return the first of some names, and how many more there are."""
    unique = list(dict.fromkeys(names))
    return ", ".join(unique[:NAMED]) + (f" and {len(unique) - NAMED} more" if len(unique) > NAMED else "")


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
    elif old.description != new.description:
        yield Finding("note", new.name, "description changes")
    shared = [name for name in old.columns if name in new.columns]
    if described := [name for name in shared if old.columns[name].description != new.columns[name].description]:
        yield Finding("note", new.name, f"description of {', '.join(described)} changes")
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


def _personal_data(before: DbtManifest, after: DbtManifest) -> list[Finding]:
    """Return leaks that are new, changed masks, and classes that reach other readable columns, or by weaker masks."""
    if (before.nodes, before.sources, _macros(before)) == (after.nodes, after.sources, _macros(after)):
        return []
    former, old, rendered, known = proven(before)
    lineage, new, rendered_now, issues = proven(after)
    with masks.rendered_by(_macros(after)):
        # By the classes before the change, too: a class that is removed hides what leaks.
        formerly = proof.resolve(declared.with_former_classes(former, lineage))
        issues |= {issue.message for issue in proof.leaks(formerly)}
        return [
            *(Finding("breaking", "personal data", message) for message in issues - known),
            *_classes(formerly, lineage),
            *_changed_masks(after, {mask for mask, _ in rendered.items() ^ rendered_now.items()}),
            *_flows(old, new, {node.name for node in after.nodes.values()}),
        ]


def proven(manifest: DbtManifest) -> tuple[proof.Lineage, Paths, dict[tuple[str, str], str], set[str]]:
    """Return the lineage of a side with its own masks, its paths, the SQL of the masks, and what is wrong."""
    with masks.rendered_by(_macros(manifest)):
        lineage = proof.resolve(manifest)
        return lineage, _paths(manifest), masks.rendered(), {issue.message for issue in check.issues_of(lineage)}


def _macros(manifest: DbtManifest) -> list[str]:
    """Return the text of the macros that render masks."""
    files = {f"macros/pii/{name}" for name in masks.FILES}
    return [macro.macro_sql for _, macro in sorted(manifest.macros.items()) if macro.original_file_path in files]


def _classes(formerly: proof.Lineage, lineage: proof.Lineage) -> Iterator[Finding]:
    for node, name, _ in lineage.staging_columns():
        was, pii = (one.column_meta(name).get("pii") for one in (formerly.manifest.nodes[node.unique_id], node))
        if was != pii:
            is_leak = pii in (None, AS_IS)
            message = f"{LEAK if is_leak else ''}PII class {was} becomes {pii or 'missing'}"
            yield Finding("breaking" if is_leak else "look", f"{node.name}.{name}", message)


def _changed_masks(manifest: DbtManifest, changed: set[tuple[str, str]]) -> Iterator[Finding]:
    """Yield the tables that hold what another mask has made: those that dbt refuses to build without a full refresh."""
    classes, names = {pii for pii, _ in changed}, {name for _, name in changed}
    stale = []
    for node in manifest.models:
        masked = [name for name in manifest.ancestors(node.unique_id) if _schema(manifest, name) == "masked"]
        staging = [name for name in manifest.ancestors(*masked) if _schema(manifest, name) == STAGING]
        behind = {column.meta.get("pii") for name in staging for column in manifest.nodes[name].columns.values()}
        if node.materialized == "incremental" and behind & classes:
            stale.append(node.name)
    if changed:
        what = "pseudonyms" if "pseudonym" in names else ", ".join(sorted(names))
        message = (
            f"{what} change, of {', '.join(sorted(classes))}: full refresh of {', '.join(sorted(stale)) or 'nothing'}"
        )
        yield Finding("look", "masks", message)


def _schema(manifest: DbtManifest, unique_id: str) -> str:
    return manifest.nodes[unique_id].schema if unique_id in manifest.nodes else ""


def _flows(old: Paths, new: Paths, names: set[str]) -> Iterator[Finding]:
    """Yield by node and class the columns with other masks than before; of removed nodes none."""
    changes: dict[tuple[str, str, tuple[str, ...], tuple[str, ...]], list[str]] = defaultdict(list)
    for node, column, pii in sorted(old.keys() | new.keys()):
        was, now = (tuple(sorted(paths.get((node, column, pii), ()))) for paths in (old, new))
        if was != now and node in names:
            changes[node, pii, was, now].append(column)
    for (node, pii, was, now), columns in changes.items():
        is_one = len(columns) == 1
        where, it = f"{node}.{columns[0]}" if is_one else node, "it" if is_one else few(columns)
        if not now:
            yield Finding("note", where, f"{pii} no longer reaches {it}, {' and '.join(was)}")
        elif not was:
            yield Finding("look", where, f"{pii} reaches {it}, {' and '.join(now)}")
        elif not {*now} <= {*was}:
            is_weaker = bool({*now} - {*was} - {f"masked as {name}" for name in masks.without_parts()})
            weaker = "weaker: " if is_weaker else ""
            yield Finding("look", where, f"{weaker}{pii} reaches {it} {' and '.join(now)}, was {' and '.join(was)}")


def impersonal_columns(*sides: DbtManifest) -> dict[str, set[str]]:
    """Return by readable node the columns that on no side hold a class, not even masked, or a subject's id.

    Of a node with such an id, quasi-identifiers are not among them either: beside it they tell about a person.
    """
    impersonal: dict[str, set[str]] = {}
    for side in sides:
        fields = {name: {flow.column for flow in flows} for name, flows in _by_value(side).items()}
        subjects = {field for source in side.landed for field in _subjects(source)}
        quasi = {
            field
            for (node, name), of_column in fields.items()
            if side.nodes[node].schema == STAGING and side.nodes[node].column_meta(name).get(declared.QUASI)
            for field in of_column
        }
        for node, relation in proof.resolve(side).readable():
            reached = {name: fields.get((node.unique_id, name), set()) for name, _ in relation.columns}
            of_subjects = {
                name for name in reached if reached[name] & subjects or node.column_meta(name).get("subjects")
            }
            hidden = quasi if of_subjects else set()
            columns = {name for name, flows in relation.columns if not flows and not reached[name] & hidden}
            impersonal[node.name] = (columns - of_subjects) & impersonal.get(node.name, columns)
    return impersonal


def _subjects(source: Node) -> Iterator[str]:
    """Yield the fields of a source table that hold the id of a person."""
    for of_kind in source.meta.get("subjects", {}).values():
        for name in of_kind["columns"] if isinstance(of_kind, dict) else of_kind:
            yield f"{source.table}.{name}".lower()


def is_measure(name: str, key: Collection[str]) -> bool:
    """Return whether a sum of a column can mean something: of numbers that identify it does not."""
    return name not in key and not name.endswith(("_id", "_key"))


def _by_value(manifest: DbtManifest) -> dict[tuple[str, str], Flows]:
    """Return what columns hold, without what decides on rows, by unique id of their node and name."""
    relations = by_value(manifest, as_classified)
    nodes = [name for name in relations if name in manifest.nodes]
    return {(name, column): flows for name in nodes for column, flows in relations[name].columns}


def _paths(manifest: DbtManifest) -> Paths:
    """Return how classes reach the columns of readable nodes by value, not by what decides on rows."""
    paths: Paths = defaultdict(set)
    for (unique_id, column), flows in _by_value(manifest).items():
        node = manifest.nodes[unique_id]
        for flow in flows if node.schema not in RESTRICTED else ():
            if flow.pii not in (AS_IS, LANDED):
                paths[node.name, column, flow.pii].add(f"masked as {flow.mask}" if flow.mask else "raw")
    return paths
