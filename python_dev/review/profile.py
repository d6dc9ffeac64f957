"""What is in the tables and columns that a change adds, which have nothing to be compared with."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from python_common.catalog.catalog import load_table
from python_common.errors import UserError
from python_dbt.manifest import DbtManifest, Node
from python_dev.review.contracts import Finding, is_measure, key
from python_dev.review.tables import stored_name
from python_export.csv.csv_file import name, one_row, reading


def profiles(
    nodes: Iterable[Node],
    manifests: tuple[DbtManifest, DbtManifest],
    catalogs: tuple[Catalog, Catalog],
    scratch: Path,
    impersonal: Mapping[str, set[str]],
) -> Iterator[Finding]:
    """Yield the figures of added tables and columns of some nodes; of columns with personal data the NULLs alone."""
    for node in nodes:
        is_new = node.unique_id not in manifests[0].nodes
        versions = [manifest.nodes.get(node.unique_id, node) for manifest in manifests]
        names = [stored_name(one, manifest) for one, manifest in zip(versions, manifests, strict=True)]
        old, new = (name and load_table(catalog, name) for name, catalog in zip(names, catalogs, strict=True))
        former = {column.name for column in old.schema().fields} if old else set()
        added = [column.name for column in new.schema().fields if column.name not in former] if new else []
        if not new or not added or not (old or is_new):
            continue
        try:
            rows, *figures = _figures(new, added, scratch, impersonal.get(node.name, set()), key(node, manifests[1]))
        except UserError as error:
            yield Finding("look", node.name, error.message)
            continue
        if is_new:
            yield Finding("look", node.name, f"{rows} rows, {len(added)} columns")
        yield from (Finding("look", f"{node.name}.{one}", text) for one, text in zip(added, figures, strict=True))


def _figures(table: Table, columns: list[str], scratch: Path, shown: set[str], identity: list[str]) -> list[str]:
    """Return the number of rows, and a phrase for each column, read in one pass."""
    rows = table.scan(selected_fields=tuple(columns)).to_arrow_batch_reader()
    figures = ["count(*)"]
    for field in rows.schema:
        cell, kind = name(field.name), field.type
        is_ranged = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_temporal(kind)
        phrase = [f"'NULLs ', count(*) - count({cell})"]
        if field.name in shown:
            phrase.append(f"', distinct ', count(distinct {cell})")
            phrase += [f"', ' || min({cell}) || ' to ' || max({cell})"] * (is_ranged or pa.types.is_decimal(kind))
            is_money = pa.types.is_decimal(kind) and is_measure(field.name, identity)
            phrase += [f"', sum ' || sum({cell})"] * is_money
        # NULL, as of a column without a value, is left out.
        figures.append(f"concat({', '.join(phrase)})")
    with reading(scratch, "DuckDB could not describe a table", "See that there is room on disk") as database:
        database.register("added", rows)
        return [str(figure) for figure in one_row(database, f"select {', '.join(figures)} from added")]
