"""Finds what a planned schema changes behind its bronze table, by lineage: classes, staging, models, weekly files."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from python_common.config.environment import PROJECT_ROOT
from python_common.errors import UserError
from python_dbt.compile import compiled_manifest
from python_dbt.manifest import DbtManifest, Node
from python_dbt.pii.declared import is_unused, maps
from python_dbt.pii.flows import NONE, STAGING, Relation
from python_dbt.pii.lineage import follow
from python_dbt.pii.origins import as_packed, columns_of
from python_dbt.pii.parse import UnsupportedSql
from python_dbt.pii.proof import METADATA, PADS, in_order, metadata_tables, table_name
from python_ingest.landing.schema_plan import SchemaChange

LOOK, BREAKING = 10, 11
# The steps of a plan's paths that a path of the lineage lacks.
STEPS = ("element", "value")


@dataclass(frozen=True)
class Reach:
    """What a field reaches that a schema adds, widens or omits (`change`).

    Columns are written model.column; `rows` are the models whose rows it decides on, or that cannot be followed. A
    field without a class is new, and neither declared nor listed as unused.
    """

    path: str
    change: str
    has_class: bool = True
    staging: list[str] = field(default_factory=list)
    models: list[str] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    rows: list[str] = field(default_factory=list)

    @property
    def exit_code(self) -> int:
        """BREAKING if a column of a weekly file gets no value, LOOK if anything else changes, or 0."""
        if self.change == "omits" and self.files:
            return BREAKING
        return 0 if self.has_class and not (self.staging or self.models or self.files or self.rows) else LOOK

    def lines(self) -> Iterator[str]:
        """Yield what is reached as a person reads it."""
        if self.exit_code:
            yield f"  {self.change} {self.path}, downstream:"
        if not self.has_class:
            yield "    class      missing: declare the field, and its class in staging, or list it as unused"
        for layer in ("staging", "models", "files", "rows"):
            if reached := getattr(self, layer):
                yield f"    {layer:<10} {', '.join(reached)}"


def downstream(plans: list[SchemaChange]) -> list[list[Reach]]:
    """Return what the fields of each plan reach in this project; a UserError if dbt cannot compile it."""
    manifest = compiled_manifest(PROJECT_ROOT)
    return [reaches(plan, manifest) for plan in plans]


def reaches(plan: SchemaChange, manifest: DbtManifest) -> list[Reach]:
    """Return what the fields of a plan reach, by a compiled manifest; a UserError if it lacks the plan's table."""
    source = next((one for one in manifest.sources.values() if one.table == plan.table), None)
    if source is None:
        raise UserError(f"No source of the dbt project is {plan.table}", "Give --models of this project")
    relations = _relations(manifest, source)
    changes = {"adds": plan.added, "widens": plan.widened, "omits": plan.not_written}
    return [_reach(path, change, source, relations, manifest) for change, paths in changes.items() for path in paths]


def _reach(
    path: str, change: str, source: Node, relations: Mapping[str, Relation | None], manifest: DbtManifest
) -> Reach:
    first, *rest = path.lower().split(".")
    plain = ".".join([first, *(step for step in rest if step not in STEPS)])
    landed = f"{table_name(source)}.{plain}"
    has_class = change != "adds" or first in METADATA or maps(source, plain) or is_unused(source, plain)
    reach = Reach(path, change, has_class)
    staged: set[str] = set()
    # Each after what it reads.
    for unique_id, relation in relations.items():
        node = manifest.nodes[unique_id]
        listed = reach.staging if node.schema == STAGING else reach.files if node.is_export else reach.models
        for name, flows in relation.columns if relation else ():
            if any(flow.column in staged or _meets(flow.column, landed) for flow in flows):
                listed.append(f"{node.name}.{name}")
                if node.schema == STAGING:
                    staged.add(f"{table_name(node)}.{name}")
        if relation is None or any(flow.column in staged or _meets(flow.column, landed) for flow in relation.indirect):
            reach.rows.append(node.name)
    return reach


def _relations(manifest: DbtManifest, source: Node) -> dict[str, Relation | None]:
    """Follow a source table through all that is made of it, in that order; None for what cannot be followed.

    Staging has flows of the source's fields, what is made of staging those of its columns.
    """
    tables = {PADS: Relation((("value", NONE),)), **metadata_tables(manifest)}
    relations: dict[str, Relation | None] = {}
    staged: set[str] = set()
    for node in in_order(manifest):
        name, is_reader = table_name(node), source.unique_id in manifest.ancestors(node.unique_id)
        names = {column.lower() for column in node.columns} | ({*METADATA} if node.resource_type == "source" else set())
        relation = columns_of(name, names) if node is source else Relation(tuple((column, NONE) for column in names))
        if node.resource_type not in ("source", "seed"):
            try:
                relation = as_packed(follow(node.compiled_code or "", tables), staged)
            except UnsupportedSql:
                if is_reader:
                    relations[node.unique_id] = None
                continue
        if is_reader:
            relations[node.unique_id] = relation
        if is_reader and node.schema == STAGING:
            relation = columns_of(name, [column for column, _ in relation.columns])
            staged |= {flow.column for flow in relation.everything()}
        tables[name] = relation
    return relations


def _meets(column: str, other: str) -> bool:
    """Return whether one of two is the other, or holds it."""
    return column == other or column.startswith(f"{other}.") or other.startswith(f"{column}.")
