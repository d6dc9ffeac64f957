"""What a change of the project can change in its tables: which nodes have other code, and all that is made of them.

Both sides are compiled without a warehouse. A node is unchanged only if its config and its compiled SQL are equal, and
no macro differs that a run calls for it: what a run asks a warehouse for is not in compiled SQL.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from python_dbt.manifest import REFERENCED, DbtManifest, Macro, Node
from python_dbt.pii.hooks import jinja_names
from python_dev.review.canonical import is_same_sql, is_same_template, is_volatile
from python_dev.review.contracts import differing

# Config that changes no row of a table.
NOT_BUILT = ("access", "contract", "docs", "group", "meta", "tags")
SETTINGS = ("conf/spark-defaults.conf", "profiles.yml")
# What has another value in a run than in a compilation without a warehouse.
RUN_CONTEXT = {
    *("adapter", "env_var", "flags", "invocation_id", "is_incremental", "load_cached_relation"),
    *("load_relation", "load_result", "run_query", "run_started_at", "statement", "target", "var"),
}
# It hashes what masks render: what they do to rows is in compiled SQL.
NOT_FOLLOWED = "mask_versions"
CONFIG, HOOK = "config ", "operation"
TIME_DEPENDENT = "its rows depend on when or how tables were built"
# Reasons that are not the node's: those of all nodes, and of all that read what is declared.
BY_DBT, BY_GRAPH = "which dbt calls by itself", "what is declared of nodes that its macros read"


@dataclass(frozen=True)
class Side:
    """A project before or after the change, compiled, with the variables of its dbt_project.yml, and its settings."""

    manifest: DbtManifest
    variables: Mapping[str, Any]
    settings: Mapping[str, object] = field(default_factory=dict)

    @cached_property
    def macros(self) -> dict[str, Macro]:
        """The project's macros by unique id."""
        projects = {node.package_name for node in self.manifest.models}
        return {name: macro for name, macro in self.manifest.macros.items() if macro.package_name in projects}


@dataclass(frozen=True)
class ReviewScope:
    """What a change can change, by unique ids.

    `changed` are nodes with other code, with the reason; `affected` those that are made of them, of added nodes or of
    other sources; `declared` nodes and sources with other names, types or config.meta; `hooks` what differs in
    the project's hooks, and `uncalled` the names of other macros that nothing calls.
    """

    changed: dict[str, str] = field(default_factory=dict)
    added: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    affected: list[str] = field(default_factory=list)
    declared: list[str] = field(default_factory=list)
    hooks: list[str] = field(default_factory=list)
    uncalled: list[str] = field(default_factory=list)

    @property
    def reached(self) -> set[str]:
        """What differs, and all that is made of it."""
        return {*self.changed, *self.added, *self.removed, *self.affected}

    @property
    def built(self) -> set[str]:
        """What dbt builds of what is changed or affected: no tests."""
        return {name for name in (*self.changed, *self.affected) if name.partition(".")[0] in REFERENCED}

    def tests(self, manifest: DbtManifest) -> list[Node]:
        """Return the tests of a side whose answer the change can reach, and the unit tests of what it changes."""
        reached, changed = self.reached, {*self.changed, *self.added}
        tests = [node for node in manifest.nodes.values() if node.resource_type == "test"]
        tests = [node for node in tests if node.unique_id in changed or not reached.isdisjoint(node.parents)]
        return [*tests, *(test for test in manifest.unit_tests.values() if not changed.isdisjoint(test.parents))]

    @property
    def own(self) -> set[str]:
        """The changed nodes whose own code differs, not only that of all nodes or what is declared of others."""
        return {name for name, reason in self.changed.items() if not reason.endswith((BY_DBT, BY_GRAPH))}


def side(manifest: DbtManifest, project: Path) -> Side:
    """Return a side of a change, from its compiled manifest and directory."""
    declared = yaml.safe_load((project / "dbt_project.yml").read_text())
    settings = {file: (project / file).read_text() for file in SETTINGS if (project / file).exists()}
    return Side(manifest, declared.get("vars") or {}, {**settings, "flags of dbt_project.yml": declared.get("flags")})


def compare(before: Side, after: Side) -> ReviewScope:
    """Return what differs between two sides."""
    sides = (before.manifest.nodes, after.manifest.nodes)
    old, new = ({name: one for name, one in side.items() if one.resource_type != HOOK} for side in sides)
    scope = ReviewScope(added=sorted(new.keys() - old.keys()), removed=sorted(old.keys() - new.keys()))
    difference = _Difference(before, after)
    scope.declared.extend(difference.declared)
    for unique_id in sorted(old.keys() & new.keys()):
        if reason := difference.of(old[unique_id], new[unique_id]):
            scope.changed[unique_id] = reason
    scope.hooks.extend(_hooks(difference, *sides))
    scope.uncalled.extend(sorted(name.rpartition(".")[2] for name in difference.changed - difference.effective))
    sources = before.manifest.sources.keys() | after.manifest.sources.keys()
    by_graph = {name for name, reason in scope.changed.items() if reason == BY_GRAPH}
    roots = {*scope.changed, *scope.added, *scope.removed, *sources & {*difference.declared}} - by_graph
    for unique_id, node in sorted(new.items()):
        ancestors = {*after.manifest.ancestors(unique_id), *before.manifest.ancestors(unique_id)}
        if node.resource_type not in REFERENCED or unique_id in roots | by_graph:
            continue
        if roots & ancestors:
            scope.affected.append(unique_id)
        elif by_graph & ancestors:
            scope.changed[unique_id] = BY_GRAPH
    return scope


def of_the_moment(compared: ReviewScope, *sides: Side) -> set[str]:
    """Return what differs whose rows depend on when or how tables were built, on any side: two builds make others."""
    nodes = [side.manifest.nodes[name] for side in sides for name in compared.reached & side.manifest.nodes.keys()]
    built = [node for node in nodes if node.resource_type in REFERENCED]
    return {
        node.unique_id for node in built if node.resource_type == "snapshot" or is_volatile(node.compiled_code or "")
    }


def _hooks(difference: "_Difference", *sides: Mapping[str, Node]) -> Iterator[str]:
    """Yield what differs in the project's hooks, by their text: their names count positions."""
    before, after = (
        {
            f"{re.sub(r'-[0-9]+$', '', one.name)}: {' '.join(one.raw_code.split())}": one
            for one in side.values()
            if one.resource_type == HOOK
        }
        for side in sides
    )
    for text in dict.fromkeys([*before, *after]):
        if text not in after or text not in before:
            yield f"{text} {'added' if text in after else 'removed'}"
        elif difference.of(before[text], after[text]):
            yield f"{text}, by its macros or variables"
    if before.keys() == after.keys() and [*before] != [*after]:
        yield "the order of hooks"


class _Difference:
    """Why a node's rows may differ between two sides."""

    def __init__(self, before: Side, after: Side) -> None:
        # One call graph: a macro has the text and the calls of both sides.
        self.macros = {**before.macros, **after.macros}
        for name, one in before.macros.items():
            two = self.macros[name]
            text, has_stand_in = f"{one.macro_sql}\n{two.macro_sql}", one.has_stand_in or two.has_stand_in
            self.macros[name] = replace(two, macro_sql=text, macros=one.macros + two.macros, has_stand_in=has_stand_in)
        old, new = ({name: macro.macro_sql for name, macro in side.macros.items()} for side in (before, after))
        self.changed = {
            name for name in differing(old, new) if not is_same_template(old.get(name, ""), new.get(name, ""))
        }
        self.effective: set[str] = set()
        self.names = {name: jinja_names(macro.macro_sql) for name, macro in self.macros.items()}
        direct = {name for name, one in self.macros.items() if one.has_stand_in or self.names[name] & RUN_CONTEXT}
        self.of_the_run = {name for name in self.macros if direct & called(self.macros, [name])}
        self.variables = {*differing(before.variables, after.variables)}
        self.declared = differing(_declared(before.manifest), _declared(after.manifest))
        self.of_dbt = {macro.name for name, macro in after.manifest.macros.items() if name not in self.macros}

    def of(self, old: Node, new: Node) -> str:
        """Return why a node is changed, '' if it is not."""
        words = jinja_names(old.raw_code) | jinja_names(new.raw_code)
        # dbt does not note what a node calls in a call block.
        named = (name for name, macro in self.macros.items() if macro.name in words)
        calls = called(self.macros, [*old.macros, *new.macros, *named])
        by_dbt = self._called_by_dbt(new.materialized)
        self.effective |= calls | by_dbt
        at_run_time = called(self.macros, calls & self.of_the_run)
        texts = [old.raw_code, new.raw_code, *(self.macros[name].macro_sql for name in calls)]
        variables = self.variables & {word for text in texts for word in re.findall(r"\w+", text)}
        is_text_same = is_same_template(old.raw_code, new.raw_code)
        if old.resource_type == HOOK:
            return "its text" if self.changed & calls or not is_text_same or variables else ""
        is_decided = is_text_same or not (at_run_time or words & RUN_CONTEXT)
        is_same = is_decided and is_same_sql(old.compiled_code or "", new.compiled_code or "")
        # What decides whether a node runs decides on no row. `model` is the node itself.
        state = {name for name in at_run_time if self.macros[name].original_file_path.startswith("macros/state/")}
        read = {word for name in at_run_time - state for word in self.names[name]}
        is_declared = (self.declared and "graph" in read) or (old.unique_id in self.declared and "model" in read)
        reasons = (
            _config(old, new),
            _listed("{}, " + BY_DBT, self.changed & by_dbt),
            _listed("{}, whose SQL a run decides on", self.changed & at_run_time),
            _listed("variable {}", variables),
            "" if is_same else _listed("SQL, by {}", self.changed & calls) or "SQL",
            BY_GRAPH if is_declared else "",
        )
        return next(filter(None, reasons), "")

    def _called_by_dbt(self, materialized: str) -> set[str]:
        """Return what dbt calls by itself for nodes of a materialization: macros that replace one of dbt, by name."""
        own = ("default__", "spark__", f"materialization_{materialized}_")
        replaced = {name for name in self.of_dbt if not name.startswith("materialization_")}
        roots = (name for name, one in self.macros.items() if one.name in replaced or one.name.startswith(own))
        return called(self.macros, roots)


def called(macros: Mapping[str, Macro], unique_ids: Iterable[str]) -> set[str]:
    """Return the macros of some unique ids and all that they call, of those in `macros`."""
    reached: set[str] = set()
    waiting = [*unique_ids]
    while waiting:
        name = waiting.pop()
        if name in macros and name not in reached:
            reached.add(name)
            waiting += macros[name].macros if macros[name].name != NOT_FOLLOWED else ()
    return reached


def _declared(manifest: DbtManifest) -> dict[str, object]:
    """Return what a yml declares of nodes and sources and SQL may follow from: names, types, config.meta."""
    return {
        name: (node.table, node.meta, node.parents, [(one, c.data_type, c.meta) for one, c in node.columns.items()])
        for name, node in {**manifest.nodes, **manifest.sources}.items()
        if node.resource_type in (*REFERENCED, "source")
    }


def _config(old: Node, new: Node) -> str:
    """Return what differs in what rows, or how they are stored, follow from."""
    if old.resource_type == "seed" and old.checksum != new.checksum:
        return "its file"
    before, after = (
        {name: value for key, entry in one.config.items() for name, value in _flat(key, entry)} for one in (old, new)
    )
    if changed := differing(before, after):
        return ", ".join(f"{CONFIG}{name} {before.get(name)} becomes {after.get(name)}" for name in changed)
    return "its arguments" if old.test_arguments != new.test_arguments else ""


def _flat(key: str, entry: Any) -> list[tuple[str, Any]]:
    """Return a config, of a mapping each entry, without those that are not built."""
    if key in NOT_BUILT:
        return []
    return [(f"{key}.{name}", value) for name, value in entry.items()] if isinstance(entry, dict) else [(key, entry)]


def _listed(phrase: str, unique_ids: Iterable[str]) -> str:
    """Return a phrase with names in it, '' without any."""
    names = ", ".join(sorted(name.rpartition(".")[2] for name in unique_ids))
    return names and phrase.format(names)
