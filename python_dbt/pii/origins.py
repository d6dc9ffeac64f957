"""Where the values of a column come from: by the lineage of the proof, without what decides on rows."""

from collections.abc import Callable, Iterable, Set
from dataclasses import dataclass, replace

from python_dbt.manifest import DbtManifest, Node
from python_dbt.pii.flows import LANDED, MASKING_KEY, NONE, STAGING, Flow, Flows, Relation
from python_dbt.pii.lineage import follow
from python_dbt.pii.masks import AS_IS
from python_dbt.pii.parse import UnsupportedSql
from python_dbt.pii.proof import METADATA, PADS, in_order, metadata_tables, table_name


@dataclass(frozen=True)
class Origin:
    """What flows into a column by value.

    `parents` are columns of the relations that its model reads, `sources` those of source tables and seeds, at most:
    of an entire row all columns count. `masked` are the classes of personal data, each with its mask,
    None if it is raw.
    """

    parents: list[str]
    sources: list[str]
    masked: list[tuple[str, str | None]]


def origins(manifest: DbtManifest) -> dict[str, dict[str, Origin]]:
    """Return the origins of columns by the unique id of their node, without nodes that cannot be followed."""
    near, far = by_value(manifest, _as_itself), by_value(manifest, as_classified)
    by_node: dict[str, dict[str, Origin]] = {}
    for unique_id in near.keys() & far.keys():
        parents = dict(near[unique_id].columns)
        by_node[unique_id] = {
            name: Origin(
                sorted({flow.column for flow in parents[name]}),
                sorted({flow.column for flow in flows}),
                sorted({(flow.pii, flow.mask) for flow in flows if flow.pii not in (AS_IS, LANDED)}, key=str),
            )
            for name, flows in far[unique_id].columns
        }
    return by_node


def by_value(manifest: DbtManifest, read_as: Callable[[Node, Relation], Relation]) -> dict[str, Relation]:
    """Follow each node; its readers get what `read_as` makes of it. What reads an unknown relation is excluded."""
    tables = {PADS: Relation((("value", NONE),)), **metadata_tables(manifest)}
    relations = {}
    for node in in_order(manifest):
        names = [name.lower() for name in node.columns]
        if node.resource_type == "source":
            names = sorted({*names, *METADATA})
        relation = Relation(tuple((name, NONE) for name in names))
        if node.resource_type not in ("source", "seed"):
            try:
                relation = follow(node.compiled_code or "", tables)
            except UnsupportedSql:
                continue
        # A mask of what has no class here adds the masking key.
        relation = Relation(tuple((name, _without_key(flows)) for name, flows in relation.columns))
        relations[node.unique_id] = relation
        tables[table_name(node)] = read_as(node, relation)
    return relations


def _without_key(flows: Flows) -> Flows:
    return frozenset(flow for flow in flows if flow.pii != MASKING_KEY.pii)


def _as_itself(node: Node, relation: Relation) -> Relation:
    """Return the columns of a node, each with itself as its one flow; fields of a payload stay separate."""
    pii = LANDED if node.resource_type == "source" else AS_IS
    return Relation(tuple((name, frozenset({Flow(f"{table_name(node)}.{name}", pii)})) for name, _ in relation.columns))


def as_classified(node: Node, relation: Relation) -> Relation:
    """Start at sources and seeds, and give the flows of a staging column the class that its yml declares."""
    if node.resource_type in ("source", "seed"):
        return _as_itself(node, relation)
    if node.schema != STAGING:
        return relation
    classes = {name: node.column_meta(name).get("pii", AS_IS) for name, _ in relation.columns}
    return Relation(
        tuple(
            (name, frozenset(Flow(flow.column, classes[name], source=node.first_source) for flow in flows))
            for name, flows in relation.columns
        )
    )


def columns_of(table: str, names: Iterable[str]) -> Relation:
    """Return a table whose columns hold themselves."""
    return Relation(tuple((name, frozenset({Flow(f"{table}.{name}", LANDED)})) for name in names))


def as_packed(relation: Relation, staged: Set[str]) -> Relation:
    """Return a relation with flows of whole staging columns, of which `staged` are those that hold themselves.

    A column that is read of a struct into which a model packed several columns is the one of that name.
    """

    def whole(flows: Flows) -> Flows:
        columns = {flow: ".".join(flow.column.split(".")[:3]) for flow in flows}
        columns = {flow: column if column in staged else flow.column for flow, column in columns.items()}
        packed = {*columns.values()}
        return frozenset(
            replace(flow, column=column)
            for flow, column in columns.items()
            if (same := f"{column.rpartition('.')[0]}.{flow.column.rpartition('.')[2]}") == column or same not in packed
        )

    return Relation(
        tuple((name, whole(flows)) for name, flows in relation.columns), whole(relation.indirect), relation.ordered
    )
