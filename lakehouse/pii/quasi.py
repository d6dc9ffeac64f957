"""Quasi-identifiers: columns that with others single out a person, though none of them names one."""

from collections.abc import Iterator

from lakehouse.manifest import DbtManifest
from lakehouse.pii.lineage import follow
from lakehouse.pii.masks import Masks
from lakehouse.pii.problem import STAGING, Problem
from lakehouse.pii.proof import PADS, in_order, metadata_tables, table_name
from lakehouse.pii.traces import NONE, Relation, Trace, Unfollowed

# The meta key that declares one, and the class of its traces.
QUASI = "quasi"


def unlabelled(manifest: DbtManifest, masks: Masks) -> Iterator[Problem]:
    """Yield the columns of exports that a quasi-identifier of staging flows into by value and whose yml is silent."""
    tables: dict[str, Relation] = {PADS: Relation((("value", NONE),)), **metadata_tables(manifest)}
    for node in in_order(manifest):
        if node.schema == STAGING or not node.compiled_code:
            declared = {name for name, column in node.columns.items() if column.meta.get(QUASI)}
            columns = {name: frozenset({Trace(f"{node.name}.{name}", QUASI)}) for name in declared}
            relation = Relation(tuple((name.lower(), columns.get(name, NONE)) for name in node.columns))
        else:
            try:
                relation = follow(node.compiled_code, tables, masks)
            except Unfollowed:
                # A problem of `trace`, and so are the models that read it.
                continue
        # A mask of what has no class here adds the masking key, and rows are decided on by others than their columns.
        by_value = [(name, {trace for trace in traces if trace.pii == QUASI}) for name, traces in relation.columns]
        tables[table_name(node)] = Relation(tuple((name, frozenset(traces)) for name, traces in by_value))
        if "export" in node.meta:
            for name, traces in by_value:
                if traces and not node.column_meta(name).get(QUASI):
                    held = ", ".join(sorted(trace.column for trace in traces))
                    yield Problem(
                        f"{node.name}.{name} holds {held}, a quasi-identifier, which its yml does not say",
                        f"Set config.meta.{QUASI} of the column to true",
                    )
