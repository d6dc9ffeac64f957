"""Which tables of two catalogs a review compares, and what differs in each; added tables and columns are described."""

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
from python_dev.review.contracts import Finding
from python_dev.review.report import TableReport
from python_dev.review.table_diff import SIDES

# The schema, in the fork alone, of the rows of views.
STORED_VIEWS = "lakehouse_review"


def is_compared_view(node: Node, manifest: DbtManifest) -> bool:
    """Return whether the rows of a view are compared: readers may have them, or no table is made of it."""
    return node.materialized == "view" and not any(
        node.schema in RESTRICTED and node.unique_id in manifest.ancestors(other.unique_id)
        for other in manifest.nodes.values()
        if other.resource_type in REFERENCED and other.materialized not in ("view", "snapshot")
    )


@dataclass
class Comparison:
    """Compares the tables of two catalogs, by the nodes of their manifests; samples have the `impersonal` columns."""

    manifests: tuple[DbtManifest, DbtManifest]
    catalogs: tuple[Catalog, Catalog]
    weeks: Sequence[IsoWeek]
    scratch: Path
    impersonal: Mapping[str, set[str]]
    with_samples: bool = False
    tables: list[TableReport] = field(default_factory=list)
    added: list[Finding] = field(default_factory=list)
    not_compared: dict[str, str] = field(default_factory=dict)

    def add(self, nodes: Iterable[Node]) -> None:
        """Compare the tables of nodes, exported ones by week; what cannot be compared is in `not_compared`."""
        for node in nodes:
            sides = [manifest.nodes.get(node.unique_id) for manifest in self.manifests]
            names = [self._stored_name(one, at) if one else None for at, one in enumerate(sides)]
            if "" in names:
                continue
            tables = [
                load_table(catalog, name) if name else None for name, catalog in zip(names, self.catalogs, strict=True)
            ]
            unstored = [side for side, name, table in zip(SIDES, names, tables, strict=True) if name and table is None]
            before, after = tables
            if unstored or after is None:
                self.not_compared[node.name] = f"no rows of it are stored {' and '.join(unstored)} the change"
                continue
            try:
                self.tables += [*self._compared(node, before, after)] if before else []
                self.added += self._described(node, before, after)
            except UserError as error:
                self.not_compared[node.name] = error.message

    def _stored_name(self, node: Node, side: int) -> str:
        """Return the table that has the rows of a node, '' of a view by the tables that are made of it."""
        if is_compared_view(node, self.manifests[side]):
            return f"{STORED_VIEWS}.{node.name}"
        return "" if node.materialized == "view" else node.table

    def _summed(self, node: Node) -> set[str]:
        """Return the columns with sums: one of values of persons may be the value of one; of ids it means nothing."""
        key = contracts.key(node, self.manifests[1])
        return {name for name in self.impersonal.get(node.name, ()) if contracts.is_measure(name, key)}

    def _compared(self, node: Node, before: Table, after: Table) -> Iterator[TableReport]:
        key, summed = contracts.key(node, self.manifests[1]), self._summed(node)
        sampled = self.impersonal.get(node.name, set()) if self.with_samples else set()
        weeks: Iterable[str | None] = map(str, self.weeks) if node.is_export else [None]
        for week in weeks:
            part = (str(node.partition_by), week) if week else None
            change = data.compare(before, after, key, self.scratch, part, sampled)
            columns = {
                name: column if name in summed else replace(column, total=None)
                for name, column in change.columns.items()
            }
            yield TableReport(node.name, replace(change, columns=columns), week)

    def _described(self, node: Node, before: Table | None, after: Table) -> Iterator[Finding]:
        former = {column.name for column in before.schema().fields} if before else set()
        added = [column.name for column in after.schema().fields if column.name not in former]
        if added:
            shown = self.impersonal.get(node.name, set())
            rows, phrases = data.described(after, added, self.scratch, shown, self._summed(node))
            if not before:
                yield Finding("look", node.name, f"{rows} rows, {len(added)} columns")
            yield from (Finding("look", f"{node.name}.{name}", phrase) for name, phrase in phrases.items())
