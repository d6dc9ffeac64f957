"""The page for analysts: what each mart and export holds, where it comes from, how fresh it is (`make docs`)."""

import math
import re
import sys
from collections import defaultdict
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from pyiceberg.catalog import Catalog
from pyiceberg.table.snapshots import Operation

from python_common.catalog.catalog import load_catalog, load_table
from python_common.config.environment import PROJECT_ROOT, environment
from python_common.config.settings import from_environment
from python_common.errors import UserError
from python_common.log import log, run_module
from python_dbt.manifest import DbtManifest, Node, load
from python_dbt.pii.origins import Origin, origins
from python_dbt.project import Project
from python_export.datasets import declared, dictionary
from python_export.datasets.dictionary import Field
from python_export.publishing.manifest import Manifest, newest
from python_export.publishing.target import Target, open_target

SENTENCE = re.compile(r"(?<=[.?!])\s+")
# The diagram, in pixels.
WIDTH, GAP, LINE, HEAD = 250, 70, 18, 30


@dataclass(frozen=True)
class Reference:
    """A relationship test: both ends are a unique id and a column."""

    child: tuple[str, str]
    parent: tuple[str, str]


@dataclass(frozen=True)
class Described:
    """A column with its classes of personal data and what became of them, and its origin.

    The origin is None if its model cannot be followed.
    """

    field: Field
    allowed_values: list[str]
    pii: list[str]
    origin: Origin | None

    @property
    def sources(self) -> dict[str, list[str]]:
        """The source columns by table."""
        by_table: dict[str, list[str]] = defaultdict(list)
        for source in self.origin.sources if self.origin else ():
            schema, table, column = source.split(".", 2)
            by_table[f"{schema}.{table}"].append(column)
        return by_table


@dataclass(frozen=True)
class Table:
    """A table: description by sentence, freshness in words, newest version by file, and analyses that read it."""

    node: Node
    sentences: list[str]
    freshness: str
    files: dict[str, Manifest | None]
    questions: list[Node]
    columns: list[Described]


@dataclass(frozen=True)
class Box:
    """A table in the diagram, with its key columns; x and y in pixels."""

    name: str
    keys: list[str]
    x: int
    y: int

    @property
    def height(self) -> int:
        """The height in pixels."""
        return HEAD + LINE * len(self.keys) + 6

    def key_y(self, column: str) -> int:
        """Return the middle of a key column's line, in pixels."""
        return self.y + HEAD + LINE * self.keys.index(column) + LINE // 2


def page(title: str, manifest: DbtManifest, catalog: Catalog | None, target: Target | None) -> str:
    """Return the page as HTML, of a compiled project, with what catalog and export root know if there are any."""
    models = public(manifest)
    boxes, references_shown = diagram(manifest, models)
    template = Environment(
        # The styles are those of the weekly report.
        loader=FileSystemLoader([Path(__file__).parent, PROJECT_ROOT / "python_export" / "notify" / "templates"]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    ).get_template("analysts.html")
    return template.render(
        title=title,
        decimal=Decimal,
        written=in_words(datetime.now(UTC)),
        tables=tables(manifest, models, catalog, target),
        names={model.unique_id: model.name for model in models},
        anchors={model.table: model.name for model in models},
        boxes=boxes,
        references=references_shown,
        box_width=WIDTH,
        svg_width=max((box.x + WIDTH + 1 for box in boxes.values()), default=0),
        svg_height=max((box.y + box.height + 1 for box in boxes.values()), default=0),
    )


def public(manifest: DbtManifest) -> list[Node]:
    """Return the models that analysts may read: marts, then exports, by name."""
    models = [model for model in manifest.models if model.config.get("access") == "public"]
    return sorted(models, key=lambda model: (model.is_export, model.name))


def tables(manifest: DbtManifest, models: list[Node], catalog: Catalog | None, target: Target | None) -> list[Table]:
    """Return what the page shows of each model."""
    datasets = declared.of_manifest(manifest).values()
    published = {dataset.name: newest(target, dataset.name) if target else None for dataset in datasets}
    analyses = [node for node in manifest.nodes.values() if node.resource_type == "analysis"]
    lineage = origins(manifest)
    return [
        Table(
            node=model,
            sentences=SENTENCE.split(" ".join(model.description.split())),
            freshness=freshness(catalog, model),
            files={dataset.name: published[dataset.name] for dataset in datasets if model.unique_id in dataset.lineage},
            questions=sorted(
                (analysis for analysis in analyses if model.unique_id in analysis.parents), key=lambda node: node.name
            ),
            columns=[
                described(manifest, model, column, lineage.get(model.unique_id, {}).get(column.name))
                for column in dictionary.of_model(model)
            ],
        )
        for model in models
    ]


def described(manifest: DbtManifest, model: Node, column: Field, origin: Origin | None) -> Described:
    """Return what the page shows of a column: its declared class and mask, else those that the lineage has."""
    tested = [
        str(value)
        for test in manifest.nodes.values()
        if test.test_name == "accepted_values"
        and (test.attached_node, test.column_name) == (model.unique_id, column.name)
        for value in test.test_arguments["values"]
    ]
    masked = [(column.pii, column.mask)] if column.pii else origin.masked if origin else []
    pii = [f"{of_class}, {f'masked as {mask}' if mask else 'not masked'}" for of_class, mask in masked]
    return Described(column, list(dict.fromkeys([*column.allowed_values, *tested])), pii, origin)


def freshness(catalog: Catalog | None, model: Node) -> str:
    """Return the time of a table's newest snapshot, from the catalog alone, or why there is no such time."""
    if model.materialized == "view":
        return "a view: as fresh as the tables it reads"
    if catalog is None:
        return "unknown, for there is no lake"
    table = load_table(catalog, model.table)
    if table is None or not (snapshots := table.snapshots()):
        return "not built yet"
    # Maintenance replaces files, and changes no rows.
    changes = [each for each in snapshots if not each.summary or each.summary.operation != Operation.REPLACE]
    return in_words(datetime.fromtimestamp(max(each.timestamp_ms for each in changes or snapshots) / 1000, UTC))


def in_words(moment: datetime) -> str:
    """Return a moment to the minute, in UTC."""
    return f"{moment:%Y-%m-%d %H:%M} UTC"


def diagram(manifest: DbtManifest, models: list[Node]) -> tuple[dict[str, Box], list[Reference]]:
    """Return a box per model that a reference joins with another one, by unique id, and these references.

    Each model is in a column to the left of all that it refers to.
    """
    names = {model.unique_id: model.name for model in models}
    joins = [
        Reference((test.attached_node, test.column_name), (parent_id, test.test_arguments["field"]))
        for test in manifest.nodes.values()
        if test.test_name == "relationships" and test.column_name and test.attached_node in names
        for parent_id in {*test.parents} - {test.attached_node}
        if parent_id in names
    ]
    keys: dict[str, set[str]] = defaultdict(set)
    for unique_id, column in (end for join in joins for end in (join.child, join.parent)):
        keys[unique_id].add(column)
    depths = dict.fromkeys(keys, 0)
    # As often as the longest path may be; references in a circle end there too.
    for _ in keys:
        for join in joins:
            depths[join.child[0]] = max(depths[join.child[0]], min(depths[join.parent[0]] + 1, len(keys)))
    boxes: dict[str, Box] = {}

    def rank(unique_id: str) -> tuple[float, str]:
        """Return where a model is in its column: next to the middle of those that refer to it, others last."""
        children = [boxes[join.child[0]].y for join in joins if join.parent[0] == unique_id and join.child[0] in boxes]
        return sum(children) / len(children) if children else math.inf, names[unique_id]

    for position, depth in enumerate(sorted({*depths.values()}, reverse=True)):
        y = 1
        for unique_id in sorted((each for each in keys if depths[each] == depth), key=rank):
            boxes[unique_id] = Box(names[unique_id], sorted(keys[unique_id]), 1 + position * (WIDTH + GAP), y)
            y += boxes[unique_id].height + 14
    return boxes, joins


def main(manifest_path: Path, path: Path) -> None:
    """Write the page of a manifest to a path."""
    manifest = load(manifest_path)
    if not all(model.compiled_code for model in public(manifest)):
        raise UserError(f"{manifest_path} has no compiled SQL, as of `dbt parse`", "Run `make docs`")
    settings = from_environment()
    try:
        catalog = load_catalog(settings)
    except UserError as error:
        log.warning("the page has no freshness: %s", error)
        catalog = None
    target = open_target(settings) if settings.export_root else None
    path.write_text(page(declared.title(Project(PROJECT_ROOT, environment())), manifest, catalog, target))


if __name__ == "__main__":
    run_module(main, Path(sys.argv[1]), Path(sys.argv[2]))
