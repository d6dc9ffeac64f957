"""Which tables of two catalogs a review compares, and what differs in each."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from python_common.catalog.catalog import load_table
from python_common.errors import UserError
from python_common.weeks import IsoWeek
from python_dbt.manifest import REFERENCED, DbtManifest, Node
from python_dbt.pii.flows import RESTRICTED
from python_dev.review import contracts, data
from python_dev.review.report import TableReport

# The schema, in the fork alone, of the rows of views.
STORED_VIEWS = "lakehouse_review"


def is_compared_view(node: Node, manifest: DbtManifest) -> bool:
    """Return whether the rows of a view are compared: readers may have them, or no table is made of it."""
    return node.materialized == "view" and not any(
        node.schema in RESTRICTED and node.unique_id in manifest.ancestors(other.unique_id)
        for other in manifest.nodes.values()
        if other.resource_type in REFERENCED and other.materialized not in ("view", "snapshot")
    )


def stored_name(node: Node, manifest: DbtManifest) -> str:
    """Return the name of the table that has the rows of a node, '' of a view by the tables that are made of it."""
    if is_compared_view(node, manifest):
        return f"{STORED_VIEWS}.{node.name}"
    return "" if node.materialized == "view" else node.table


@dataclass
class Comparison:
    """Compares the tables of two catalogs, by the nodes of a manifest; `former` is that of the first, if it differs."""

    manifest: DbtManifest
    weeks: Sequence[IsoWeek]
    scratch: Path
    impersonal: Mapping[str, set[str]]
    with_samples: bool = False
    former: DbtManifest | None = None
    not_compared: dict[str, str] = field(default_factory=dict)

    def tables(self, nodes: Iterable[Node], before: Catalog, after: Catalog) -> list[TableReport]:
        """Return what differs, of exported tables by week. What cannot be compared is in `not_compared`."""
        reports: list[TableReport] = []
        for node in nodes:
            manifests = self.former or self.manifest, self.manifest
            names = [stored_name(one.nodes.get(node.unique_id, node), one) for one in manifests]
            if "" in names:
                continue
            tables = [load_table(catalog, name) for catalog, name in zip((before, after), names, strict=True)]
            if tables[0] is None or tables[1] is None:
                side = "on both sides of" if tables == [None, None] else "after" if tables[0] else "before"
                self.not_compared[node.name] = f"no rows of it are stored {side} the change"
                continue
            try:
                reports += [*self._compared(node, tables[0], tables[1])]
            except UserError as error:
                self.not_compared[node.name] = error.message
        return reports

    def _compared(self, node: Node, before: Table, after: Table) -> Iterator[TableReport]:
        key, impersonal = contracts.key(node, self.manifest), self.impersonal.get(node.name, set())
        weeks: Iterable[str | None] = map(str, self.weeks) if node.is_export else [None]
        for week in weeks:
            part = (str(node.partition_by), week) if week else None
            change = data.compare(before, after, key, self.scratch, part, impersonal if self.with_samples else ())
            totals = data.totals(before, self.scratch, part) if part and not change.is_equal else {}
            # A sum of values of persons may be the value of one; of ids it means nothing.
            summed = {name for name in impersonal if contracts.is_measure(name, key)}
            columns = {
                name: column if name in summed else replace(column, total=None)
                for name, column in change.columns.items()
            }
            totals = {name: total for name, total in totals.items() if name in summed}
            yield TableReport(node.name, replace(change, columns=columns), week, totals)
