"""Checks what a dbt project runs or publishes outside compiled models, which lineage does not follow: hooks first."""

import hashlib
import re
from collections.abc import Iterator
from functools import cache

import jinja2

from python_common.errors import Issue
from python_dbt.manifest import DbtManifest, Macro, Node
from python_dbt.pii.flows import RESTRICTED

EXPORTED = "exp_"
# Hooks that were reviewed and show no value: they check the masking key, the options and the lease, and tag what was
# tested.
REVIEWED_HOOKS = {
    "{{ check_pii_key() }}",
    "{{ load_node_states() }}",
    "{{ require_lease() }}",
    "{{ require_lease(at_end=true) }}",
    "{{ require_whole_input() }}",
    "{{ save_node_states(results) }}",
    "{{ tag_tested(results) }}",
}
# Configuration that is SQL and is in no compiled model.
SQL_OPTIONS = ("sql_header", "incremental_predicates")
SENDS_SQL = {"run_query", "statement", "adapter", "load_result", "context", "builtins"}
# Macros of models that were reviewed and show no value, with the hash of their text: they ask for the names and
# properties of tables, and for the weeks or versions that one holds; a test asks for the node of its model.
REVIEWED_MACROS = {
    "describe_many": "6fecd6fe3668",
    "every_bronze_table": "108ab7f73528",
    "every_stored_table": "0b902bcd4f0b",
    "partitions_of_run": "4cf164c738b2",
    "source_or_empty": "35dd4515ce4e",
    "test_adds_up": "276fa087a739",
    "test_keeps_contract": "9827fe02a8a0",
    "with_stored_partitions": "64b7c1c221c3",
}
DBT_PACKAGES = {"dbt", "dbt_spark"}


def issues(manifest: DbtManifest) -> Iterator[Issue]:
    """Yield hooks, SQL in configuration, statements that Jinja sends, and exports of a restricted schema."""
    yield from _macros(manifest)
    for node in manifest.nodes.values():
        yield from _hooks(node)
        yield from _options(node)
        yield from _jinja(node)
        if node.name.startswith(EXPORTED) and node.schema in RESTRICTED:
            yield Issue(
                f"{node.name} is an export in the restricted schema {node.schema}", "Leave it in schema exports"
            )


def _hooks(node: Node) -> Iterator[Issue]:
    is_of_project = node.resource_type == "operation"
    where = "The project" if is_of_project else node.name
    hooks = [hook.sql for hook in (*node.pre_hooks, *node.post_hooks)]
    for sql in (*hooks, node.raw_code) if is_of_project else hooks:
        if sql.strip() not in REVIEWED_HOOKS:
            yield Issue(f"{where} has a hook, whose SQL is not proven", "Do without it")


def _options(node: Node) -> Iterator[Issue]:
    for option in SQL_OPTIONS:
        if getattr(node, option):
            yield Issue(f"{node.name} has the option {option}, whose SQL is not proven", "Do without it")
    if node.resource_type == "test" and node.fail_calc != "count(*)":
        yield Issue(f"{node.name} shows the result of its fail_calc in logs", "Count rows as other tests do")
    if node.meta.get("excluded", {}).get("sum") and node.schema in RESTRICTED:
        yield Issue(f"{node.name} shows a sum of a restricted schema in the report", "Let it count its rows")
    if node.resource_type == "snapshot":
        columns = [node.unique_key, node.updated_at, node.check_cols]
        named = [name for option in columns if option for name in (option if isinstance(option, list) else [option])]
        for name in named:
            if not name.isidentifier():
                yield Issue(f"{node.name} computes {name}, which is not proven", "Name a column of its query")


def _jinja(node: Node) -> Iterator[Issue]:
    """Yield what sends SQL in Jinja: compiled SQL does not show it, for instance behind a condition."""
    if node.resource_type not in ("model", "snapshot", "test"):
        return
    for name in _ways_to_send_sql(node.raw_code):
        yield Issue(f"{node.name} uses {name} in its Jinja, whose SQL is not proven", "Do without it")


def _macros(manifest: DbtManifest) -> Iterator[Issue]:
    """Yield the macros that models, snapshots and tests call, at any depth, that send SQL and were not reviewed."""
    nodes_with_sql = [node for node in manifest.nodes.values() if node.resource_type in ("model", "snapshot", "test")]
    waiting = [unique_id for node in nodes_with_sql for unique_id in node.macros]
    # dbt does not note what a node calls in a call block.
    named = frozenset().union(*(jinja_names(node.raw_code) for node in nodes_with_sql))
    waiting += [unique_id for unique_id, macro in manifest.macros.items() if macro.name in named]
    called: set[str] = set()
    while waiting:
        unique_id = waiting.pop()
        macro = manifest.macros.get(unique_id)
        if macro is None or unique_id in called or macro.package_name in DBT_PACKAGES:
            continue
        called.add(unique_id)
        waiting += macro.macros
        names = _ways_to_send_sql(macro.macro_sql)
        if names and macro.name not in REVIEWED_MACROS:
            yield Issue(f"Models call macro {macro.name} with {', '.join(names)}: its SQL is not proven", "Remove it")
        elif names and (text := reviewed_text(macro)) != REVIEWED_MACROS[macro.name]:
            remedy = f"Review it, and write {text} beside its name in python_dbt/pii/hooks.py"
            yield Issue(f"Macro {macro.name}, which models call, sends SQL and was changed since its review", remedy)


def reviewed_text(macro: Macro) -> str:
    """Return the hash of a macro's text, by which its review counts."""
    return hashlib.sha256(macro.macro_sql.encode()).hexdigest()[:12]


def _ways_to_send_sql(jinja: str) -> list[str]:
    """Return the names by which Jinja sends SQL."""
    return sorted(jinja_names(jinja) & SENDS_SQL)


@cache
def jinja_names(text: str) -> frozenset[str]:
    """Return the names in the Jinja of a template, also of attributes; all words of one that cannot be read."""
    try:
        return frozenset(value for _, kind, value in jinja2.Environment().lex(text) if kind == "name")
    except jinja2.TemplateSyntaxError:
        return frozenset(re.findall(r"\w+", text))
