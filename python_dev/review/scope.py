"""What a change of the project can change in its tables: which nodes have other code, and all that is made of them.

Both sides are compiled without a warehouse. A node is unchanged only if its config and its compiled SQL are equal, and
no macro differs of those whose SQL a run decides on: what a run asks a warehouse for is not in compiled SQL.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from python_dbt.manifest import REFERENCED, DbtManifest, Macro, Node
from python_dbt.pii.hooks import jinja_names
from python_dev.review.canonical import is_same_sql
from python_dev.review.contracts import differing
from python_dev.review.templates import OF_THE_RUN, is_decided_when_compiled, is_same_template

TABLES = (*REFERENCED, "source")
# Config that changes no row of a table.
NOT_BUILT = ("access", "contract", "docs", "group", "meta", "tags")
SETTINGS = ("conf/spark-defaults.conf", "profiles.yml")
# By which dbt finds a macro that replaces one of dbt.
DISPATCHED = ("default__", "materialization_", "spark__")


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

    @cached_property
    def of_the_run(self) -> set[str]:
        """The unique ids of macros that can give other SQL in a run than the compiled one."""
        direct = {
            name
            for name, macro in self.macros.items()
            if macro.has_stand_in or jinja_names(macro.macro_sql) & OF_THE_RUN
        }
        return {name for name in self.macros if direct & self.called(name)}

    @cached_property
    def readers_of_graph(self) -> set[str]:
        """The macros that read what is declared of nodes, but for those that decide whether a node runs."""
        return {
            name
            for name, macro in self.macros.items()
            if jinja_names(macro.macro_sql) & {"graph", "model"}
            and not macro.original_file_path.startswith("macros/state/")
        }

    def calls(self, node: Node) -> set[str]:
        """Return the macros that a node calls, and all that they call. Those of call blocks only the text names."""
        used = jinja_names(node.raw_code)
        return self.called(*node.macros, *(name for name, macro in self.macros.items() if macro.name in used))

    def called(self, *unique_ids: str) -> set[str]:
        """Return macros and all that they call, of the project."""
        reached: set[str] = set()
        waiting = [name for name in unique_ids if name in self.macros]
        while waiting:
            name = waiting.pop()
            if name not in reached:
                reached.add(name)
                waiting += [other for other in self.macros[name].macros if other in self.macros]
        return reached

    @cached_property
    def called_by_dbt(self) -> set[str]:
        """The macros that dbt calls by itself, for every node, with all that they call."""
        of_dbt = {macro.name for name, macro in self.manifest.macros.items() if name not in self.macros}
        return self.called(
            *(name for name, macro in self.macros.items() if macro.name in of_dbt or macro.name.startswith(DISPATCHED))
        )


@dataclass(frozen=True)
class ReviewScope:
    """What a change can change, by unique ids.

    `changed` are nodes with other code, with the reason; `affected` those that are made of them, of added nodes or of
    other sources; `same` those with another text that means the same. `hooks` are names of hooks with other code.
    """

    changed: dict[str, str] = field(default_factory=dict)
    added: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    affected: list[str] = field(default_factory=list)
    same: list[str] = field(default_factory=list)
    hooks: list[str] = field(default_factory=list)

    @property
    def reached(self) -> set[str]:
        """What differs, and all that is made of it."""
        return {*self.changed, *self.added, *self.removed, *self.affected}


def side(manifest: DbtManifest, project: Path) -> Side:
    """Return a side of a change, from its compiled manifest and directory."""
    declared = yaml.safe_load((project / "dbt_project.yml").read_text())
    settings = {file: (project / file).read_text() for file in SETTINGS if (project / file).exists()}
    return Side(manifest, declared.get("vars") or {}, {**settings, "flags of dbt_project.yml": declared.get("flags")})


def compare(before: Side, after: Side) -> ReviewScope:
    """Return what differs between two sides."""
    old, new = before.manifest.nodes, after.manifest.nodes
    scope = ReviewScope(added=sorted(new.keys() - old.keys()), removed=sorted(old.keys() - new.keys()))
    difference = _Difference(before, after)
    for unique_id in sorted(old.keys() & new.keys()):
        reason = difference.of(old[unique_id], new[unique_id])
        if reason is None:
            scope.same.append(unique_id)
        elif reason and new[unique_id].resource_type == "operation":
            scope.hooks.append(new[unique_id].name)
        elif reason:
            scope.changed[unique_id] = reason
    roots = {*scope.changed, *scope.added, *scope.removed, *difference.sources}
    for unique_id, node in sorted(new.items()):
        if node.resource_type not in REFERENCED or unique_id in roots:
            continue
        if roots & {*after.manifest.ancestors(unique_id), *before.manifest.ancestors(unique_id)}:
            scope.affected.append(unique_id)
    return scope


class _Difference:
    """Why a node's rows may differ between two sides."""

    def __init__(self, before: Side, after: Side) -> None:
        self.before, self.after = before, after
        self.macros = {
            name
            for name in before.macros.keys() | after.macros.keys()
            if name not in before.macros
            or name not in after.macros
            or not is_same_template(before.macros[name].macro_sql, after.macros[name].macro_sql)
        }
        self.of_the_run = before.of_the_run | after.of_the_run
        self.called_by_dbt = self.macros & (before.called_by_dbt | after.called_by_dbt)
        self.variables = {*differing(before.variables, after.variables)}
        sources = [side.manifest.sources.items() for side in (before, after)]
        self.sources = differing(*({name: declared(source) for name, source in of_side} for of_side in sources))
        self.is_graph_same = _graph(before.manifest) == _graph(after.manifest)

    def of(self, old: Node, new: Node) -> str | None:
        """Return why a node is changed, '' if nothing of it is, and None if what differs means the same."""
        if old.resource_type == "seed":
            return _config(old, new) or ("its file" if old.checksum != new.checksum else "")
        calls = self.before.calls(old) | self.after.calls(new)
        changed = self.macros & calls
        is_text_same = is_same_template(old.raw_code, new.raw_code)
        if old.resource_type == "operation":
            return "its text" if changed or not is_text_same or self._variables(old, new, calls) else ""
        if reason := _config(old, new) or self._of_the_run(old, new, calls):
            return reason
        short = {name.rpartition(".")[2] for name in self.of_the_run}
        is_decided = is_text_same or is_decided_when_compiled(old.raw_code, new.raw_code, short)
        if not is_decided or not is_same_sql(old.compiled_code or "", new.compiled_code or ""):
            return f"SQL, by {_listed(changed)}" if changed else "SQL"
        return "" if old.raw_code == new.raw_code and not changed else None

    def _of_the_run(self, old: Node, new: Node, calls: set[str]) -> str:
        """Return what differs that compiled SQL does not show: what dbt itself, variables and the graph decide on."""
        of_the_run = calls & self.of_the_run
        if self.called_by_dbt:
            return f"{_listed(self.called_by_dbt)}, which dbt calls for every node"
        if self.macros & of_the_run:
            return f"{_listed(self.macros & of_the_run)}, whose SQL a run decides on"
        if variables := self._variables(old, new, calls):
            return f"variable {', '.join(sorted(variables))}"
        if not self.is_graph_same and any(of_the_run & side.readers_of_graph for side in (self.before, self.after)):
            return "what is declared of nodes that its macros read"
        return ""

    def _variables(self, old: Node, new: Node, calls: set[str]) -> set[str]:
        """Return the variables that differ and that the text of a node or of its macros names."""
        macros = [side.macros[name] for side in (self.before, self.after) for name in calls if name in side.macros]
        texts = [old.raw_code, new.raw_code, *(macro.macro_sql for macro in macros)]
        return self.variables & {word for text in texts for word in re.findall(r"\w+", text)}


def declared(node: Node) -> object:
    """Return what a yml declares of a node or source and SQL may follow from: names, types, config.meta."""
    columns = [(name, column.data_type, column.meta) for name, column in node.columns.items()]
    return node.unique_id, node.table, node.meta, columns


def built_config(node: Node) -> dict[str, Any]:
    """Return the config of a node that its rows, or how they are stored, follow from."""
    return {name: value for name, value in node.config.items() if name not in NOT_BUILT}


def _config(old: Node, new: Node) -> str:
    before, after = built_config(old), built_config(new)
    if changed := differing(before, after):
        return ", ".join(f"config {name} {before.get(name)} becomes {after.get(name)}" for name in changed)
    return "its arguments" if old.test_arguments != new.test_arguments else ""


def _graph(manifest: DbtManifest) -> list[object]:
    nodes = [*manifest.nodes.values(), *manifest.sources.values()]
    return sorted(
        ((node.unique_id, declared(node), node.parents) for node in nodes if node.resource_type in TABLES), key=str
    )


def _listed(unique_ids: Iterable[str]) -> str:
    return ", ".join(sorted(name.rpartition(".")[2] for name in unique_ids))
