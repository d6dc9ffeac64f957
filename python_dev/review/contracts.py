"""What a change does to what readers rely on: columns, keys, grain, tests, descriptions, personal data."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from textwrap import shorten
from typing import Any, Literal

from python_dbt.manifest import REFERENCED, DbtManifest, Node
from python_dbt.pii import check, declared, masks, proof
from python_dbt.pii.flows import LANDED, RESTRICTED, STAGING, Relation
from python_dbt.pii.masks import AS_IS
from python_dbt.pii.origins import as_classified, as_packed, by_value, columns_of

Severity = Literal["note", "look", "breaking"]
# In the order in which a report shows them.
SEVERITIES: tuple[Severity, ...] = ("breaking", "look", "note")
LEAK = "leak: "
# How many names a line has, and characters a text.
NAMED, SHOWN = 5, 100
# What readers can fail without.
BREAKING = ("key", "access", "contract", "type", "constraints")
NOTHING = "none"
# By name of node, column and class: how the class reaches the column.
Paths = dict[tuple[str, str, str], set[str]]
Proof = tuple[proof.Lineage, Paths, dict[tuple[str, str], str], set[str]]
"""The lineage of a side by its own masks, how classes reach columns, the SQL of the masks, and what is wrong."""


@dataclass(frozen=True)
class Finding:
    """Something that a change does; `object` is the name of a model, test or hook, and what of it."""

    severity: Severity
    object: str
    message: str


def findings(before: DbtManifest, after: DbtManifest, former: Proof | None = None) -> list[Finding]:
    """Compare the declarations of two compiled manifests, and what is proven; `former` is the proof of the first."""
    unsorted = [*_personal_data(before, after, former)]
    for unique_id in sorted(before.nodes.keys() | after.nodes.keys()):
        old, new = before.nodes.get(unique_id), after.nodes.get(unique_id)
        if old and new:
            if new.resource_type in REFERENCED:
                unsorted += _contract(old, new, before, after)
        elif old and old.resource_type in REFERENCED:
            unsorted.append(Finding("breaking" if is_public(old) else "look", old.name, f"{old.resource_type} removed"))
        elif old and old.resource_type == "test":
            unsorted.append(Finding("look", old.name, "test removed"))
        elif new and new.resource_type == "test":
            unsorted.append(Finding("note", new.name, "test added"))
        elif new and new.resource_type in REFERENCED:
            unsorted.append(Finding("look", new.name, f"{new.resource_type} added"))
    for name in differing(before.exposures, after.exposures):
        was, now = before.exposures.get(name), after.exposures.get(name)
        what = "changed" if was and now else "removed" if was else "added"
        unsorted.append(Finding("look" if was else "note", f"exposure {name.rpartition('.')[2]}", what))
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


def _contract(old: Node, new: Node, before: DbtManifest, after: DbtManifest) -> Iterator[Finding]:
    was, now = _promises(old, before), _promises(new, after)
    severity: Severity = "breaking" if is_public(old) else "look"
    yield from (Finding(severity, name, "column removed") for name in was.keys() - now.keys())
    for name in now.keys() - was.keys():
        facts = ", ".join(map(" ".join, now[name].items()))
        yield Finding("look", name, shorten(f"column added, {facts}", SHOWN, placeholder=" ..."))
    for name in was.keys() & now.keys():
        for kind in differing(was[name], now[name]):
            one, other = was[name].get(kind, NOTHING), now[name].get(kind, NOTHING)
            is_broken = kind in BREAKING and one != NOTHING
            is_note = kind == "description" and not (is_public(new) and other == NOTHING)
            level = "note" if is_note else severity if is_broken else "look"
            texts = dict.fromkeys(shorten(text, SHOWN, placeholder=" ...") for text in (one, other))
            # The first words may be the same.
            yield Finding(level, name, f"{kind} {' becomes '.join(texts) if len(texts) > 1 else 'changes'}")
    shared = [name for name in old.columns if name in new.columns]
    if new.is_export and [*new.columns][: len(shared)] != shared:
        yield Finding("breaking", new.name, "columns move: only a new last one moves no other")


def _promises(node: Node, manifest: DbtManifest) -> dict[str, dict[str, str]]:
    """Return what a node promises its readers, and what decides on its files, by node or column and by kind."""
    is_enforced = (node.config.get("contract") or {}).get("enforced")
    promises: dict[str, dict[str, Any]] = {
        node.name: {
            "key": ", ".join(key(node, manifest)),
            "grain": node.grain,
            "description": node.description,
            "access": "public" if is_public(node) else "",
            "contract": "enforced" if is_enforced else "",
            **{f"config.meta.export.{kind}": value for kind, value in node.meta.get("export", {}).items()},
        }
    }
    for name, column in node.columns.items():
        promises[f"{node.name}.{name}"] = {
            "type": column.data_type,
            "constraints": ", ".join(constraint.type for constraint in column.constraints),
            "description": column.description,
            **{f"config.meta.{kind}": value for kind, value in column.meta.items() if node.is_export},
        }
    return {
        name: {kind: NOTHING if text in (None, "") else str(text) for kind, text in kinds.items()}
        for name, kinds in promises.items()
    }


def _personal_data(before: DbtManifest, after: DbtManifest, proof_before: Proof | None) -> list[Finding]:
    """Return leaks that are new, changed masks, and classes that reach other readable columns, or by weaker masks."""
    if (before.nodes, before.sources, _macros(before)) == (after.nodes, after.sources, _macros(after)):
        return []
    former, old, rendered, known = proof_before or proven(before)
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


def proven(manifest: DbtManifest) -> Proof:
    """Return what is proven of personal data on a side."""
    with masks.rendered_by(_macros(manifest)):
        lineage = proof.resolve(manifest)
        return lineage, _paths(manifest), masks.rendered(), {issue.message for issue in check.issues_of(lineage)}


def _macros(manifest: DbtManifest) -> list[str]:
    """Return the text of the macros that render masks."""
    files = {f"macros/pii/{name}" for name in masks.FILES}
    return [macro.macro_sql for _, macro in sorted(manifest.macros.items()) if macro.original_file_path in files]


def _classes(formerly: proof.Lineage, lineage: proof.Lineage) -> Iterator[Finding]:
    for node, name, _ in lineage.staging_columns():
        yield from _class(node, name, formerly.manifest.nodes[node.unique_id])


def declared_classes(before: DbtManifest, after: DbtManifest) -> Iterator[Finding]:
    """Yield the columns whose yml declares another class, of a project that dbt can parse and not compile."""
    for node in after.models:
        for name in node.columns if node.schema == STAGING and node.unique_id in before.nodes else ():
            yield from _class(node, name, before.nodes[node.unique_id])


def _class(node: Node, name: str, former: Node) -> Iterator[Finding]:
    was, pii = (one.column_meta(name).get("pii") for one in (former, node))
    if was != pii:
        is_leak = pii in (None, AS_IS)
        message = f"{LEAK if is_leak else ''}PII class {was} becomes {pii or 'missing'}"
        yield Finding("breaking" if is_leak else "look", f"{node.name}.{name}", message)


def _changed_masks(manifest: DbtManifest, changed: set[tuple[str, str]]) -> Iterator[Finding]:
    """Yield the tables that hold what another mask has made: those that dbt refuses to build without a full refresh."""
    classes, names = {pii for pii, _ in changed}, {name for _, name in changed}
    in_layer = {schema: [one for one in manifest.models if one.schema == schema] for schema in (STAGING, "masked")}
    of_classes = {
        node.unique_id
        for node in in_layer[STAGING]
        if any(column.meta.get("pii") in classes for column in node.columns.values())
    }
    masked = {one.unique_id for one in in_layer["masked"] if of_classes & {*manifest.ancestors(one.unique_id)}}
    tables = [one for one in manifest.models if one.materialized == "incremental"]
    stale = sorted(one.name for one in tables if masked & {*manifest.ancestors(one.unique_id)}) or ["nothing"]
    if changed:
        what = "pseudonyms" if "pseudonym" in names else ", ".join(sorted(names))
        refresh = f"full refresh of {', '.join(stale)}"
        yield Finding("look", "masks", f"{what} change, of {', '.join(sorted(classes))}: {refresh}")


def _flows(old: Paths, new: Paths, names: set[str]) -> Iterator[Finding]:
    """Yield the columns that a class reaches in another way than before; of removed nodes none."""
    for node, column, pii in sorted(old.keys() | new.keys()):
        was, now = (paths.get((node, column, pii), set()) for paths in (old, new))
        before, after = (" and ".join(sorted(paths)) for paths in (was, now))
        if node not in names or (now and now <= was):
            continue
        if not now:
            yield Finding("note", f"{node}.{column}", f"{pii} no longer reaches it, {before}")
        elif not was:
            yield Finding("look", f"{node}.{column}", f"{pii} reaches it, {after}")
        else:
            weaker = "weaker: " if now - was - {f"masked as {name}" for name in masks.without_parts()} else ""
            yield Finding("look", f"{node}.{column}", f"{weaker}{pii} reaches it {after}, was {before}")


def impersonal_columns(*sides: DbtManifest) -> dict[str, set[str]]:
    """Return by readable node the columns that on no side hold a class, not even masked, or a subject's id.

    Of a node with such an id, quasi-identifiers are not among them either: beside it they tell about a person.
    """
    columns: dict[str, set[str]] = defaultdict(set)
    personal: dict[str, set[str]] = defaultdict(set)
    for side in sides:
        lineage, staged = proof.resolve(side), _staged(side)
        landed = {field for source in side.landed for field in _subjects(source)}
        fields = {f"{proof.table_name(node)}.{name}": (node, name, of) for node, name, of in lineage.staging_columns()}
        subjects = {column for column, (_, _, of_column) in fields.items() if of_column & landed}
        quasi = {column for column, (node, name, _) in fields.items() if node.column_meta(name).get(declared.QUASI)}
        for node, relation in lineage.readable():
            reached = {name: staged.get((node.unique_id, name), set()) for name, _ in relation.columns}
            of_subjects = {
                name for name in reached if reached[name] & subjects or node.column_meta(name).get("subjects")
            }
            hidden = quasi if of_subjects else set()
            columns[node.name] |= {*reached}
            personal[node.name] |= of_subjects | {
                name for name, flows in relation.columns if flows or reached[name] & hidden
            }
    return {name: columns[name] - personal[name] for name in columns}


def _staged(manifest: DbtManifest) -> dict[tuple[str, str], set[str]]:
    """Return the staging columns that a column holds, by unique id of its node and name."""
    staged: set[str] = set()

    def read(node: Node, relation: Relation) -> Relation:
        if node.schema != STAGING:
            return as_packed(relation, staged)
        itself = columns_of(proof.table_name(node), [name for name, _ in relation.columns])
        staged.update(flow.column for flow in itself.everything())
        return itself

    relations = by_value(manifest, read)
    return {
        (unique_id, name): {flow.column for flow in flows}
        for unique_id, relation in relations.items()
        for name, flows in as_packed(relation, staged).columns
    }


def _subjects(source: Node) -> Iterator[str]:
    """Yield the fields of a source table that hold the id of a person."""
    for of_kind in source.meta.get("subjects", {}).values():
        for name in of_kind["columns"] if isinstance(of_kind, dict) else of_kind:
            yield f"{source.table}.{name}".lower()


def is_measure(name: str, key: Collection[str]) -> bool:
    """Return whether a sum of a column can mean something: of numbers that identify it does not."""
    return name not in key and not name.endswith(("_id", "_key"))


def _paths(manifest: DbtManifest) -> Paths:
    """Return how classes reach the columns of readable nodes by value, not by what decides on rows."""
    paths: Paths = defaultdict(set)
    for unique_id, relation in by_value(manifest, as_classified).items():
        node = manifest.nodes.get(unique_id)
        for column, flows in relation.columns if node and node.schema not in RESTRICTED else ():
            for flow in flows:
                if node and flow.pii not in (AS_IS, LANDED):
                    paths[node.name, column, flow.pii].add(f"masked as {flow.mask}" if flow.mask else "raw")
    return paths
