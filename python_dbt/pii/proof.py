"""The proof that no classified column leaves the restricted layers raw, over dbt's manifest with compiled SQL."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from graphlib import TopologicalSorter

from python_common.errors import Issue
from python_dbt.manifest import Column, DbtManifest, Node
from python_dbt.pii import masks
from python_dbt.pii.flows import LANDED, MASKING_KEY, NONE, RESTRICTED, STAGING, Flow, Flows, Relation
from python_dbt.pii.lineage import follow
from python_dbt.pii.masks import AS_IS
from python_dbt.pii.parse import UnsupportedSql

# The meta key by which a model states why its numbers of distinct classified values show none of them.
DISTINCT_COUNTS = "distinct_counts"
PADS = "spark_catalog.default.pii_pads"

# What the ingester adds to a payload, without the copies of the payload among it.
WITHOUT_PAYLOAD = (
    "kafka_topic",
    "kafka_generation",
    "kafka_partition",
    "kafka_offset",
    "kafka_timestamp",
    "kafka_timestamp_type",
    "key_schema_id",
    "value_schema_id",
    "decode_error",
    "key_error",
    "ingest_batch",
    "ingested_at",
)
WHOLE_PAYLOAD = ("kafka_headers", "kafka_raw_key", "kafka_raw_value")
COPIES_OF_PAYLOAD = ("kafka_key", *WHOLE_PAYLOAD)
# All columns of a bronze table but the payload's.
METADATA = (*WITHOUT_PAYLOAD, *COPIES_OF_PAYLOAD)

_FILES = ("content", "file_path", "file_format", "spec_id", "record_count", "file_size_in_bytes", "sort_order_id")
# Iceberg's metadata tables by column. Not among them, so that reading it is no proof: bounds and partitions of
# values (of a file, a manifest), and deleted rows.
METADATA_TABLES = {
    "snapshots": ("committed_at", "snapshot_id", "parent_id", "operation", "manifest_list", "summary"),
    "history": ("made_current_at", "snapshot_id", "parent_id", "is_current_ancestor"),
    "refs": ("name", "type", "snapshot_id"),
    "files": _FILES,
    "data_files": _FILES,
    "delete_files": _FILES,
    "manifests": ("content", "path", "length", "added_snapshot_id"),
    "metadata_log_entries": ("timestamp", "file", "latest_snapshot_id"),
}

LABEL = "Set config.meta.pii and config.meta.mask of the column: the dictionary of the published file has them"


@dataclass(frozen=True)
class Lineage:
    """The column lineage of a compiled project.

    `relations` are what readers see of each node, by its unique id; `landed` names of each staging model the bronze
    fields that each column is made of; `issues` are the models that cannot be followed, or must not be as they are.
    """

    manifest: DbtManifest
    relations: dict[str, Relation] = field(default_factory=dict)
    landed: dict[str, dict[str, set[str]]] = field(default_factory=dict)
    issues: list[Issue] = field(default_factory=list)

    def staging_columns(self) -> Iterator[tuple[Node, str, set[str]]]:
        """Yield each column of a staging model with the bronze fields that it is made of."""
        for node in self.manifest.models:
            for name, fields in self.landed.get(node.unique_id, {}).items():
                yield node, name, fields

    def readable(self) -> Iterator[tuple[Node, Relation]]:
        """Yield the nodes outside the restricted layers with what readers see of them."""
        for unique_id, relation in self.relations.items():
            node = self.manifest.nodes.get(unique_id)
            if node is not None and node.schema not in RESTRICTED:
                yield node, relation


def resolve(manifest: DbtManifest) -> Lineage:
    """Follow every column of a compiled project from bronze to where it is read."""
    tables = {PADS: Relation((("value", frozenset({MASKING_KEY})),)), **metadata_tables(manifest)}
    lineage = Lineage(manifest)
    for node in in_order(manifest):
        name = table_name(node)
        try:
            if node.resource_type == "source":
                relation = _bronze(name, node)
            elif node.resource_type == "seed":
                relation = Relation(tuple((column.lower(), NONE) for column in node.columns))
            elif not node.compiled_code:
                raise UnsupportedSql("the dbt command did not compile it; `dbt compile` compiles all")
            else:
                relation = follow(node.compiled_code, tables)
        except UnsupportedSql as reason:
            remedy = "Write it in SQL that python_dbt/pii/lineage.py knows, or teach it what is missing"
            lineage.issues.append(Issue(f"{node.name} cannot be followed, {reason}", remedy))
            continue
        if node.meta.get(DISTINCT_COUNTS):
            relation = relation.without_counts()
        if node.schema == STAGING:
            lineage.issues.extend(_declassified(node, relation))
            lineage.landed[node.unique_id] = {
                column: {flow.column for flow in flows if flow.pii == LANDED} for column, flows in relation.columns
            }
            declared = _as_declared(node, relation)
            classified = {column for column, flows in declared.columns if flows}
            raw = [(column, flows) for column, flows in relation.columns if column in classified]
            lineage.issues.extend(_computed_from_raw(node, raw))
            relation = declared
        elif node.schema in RESTRICTED:
            lineage.issues.extend(_computed_from_raw(node, relation.flat().columns))
        tables[name] = lineage.relations[node.unique_id] = relation.flat()
    return lineage


def table_name(node: Node) -> str:
    """Return the name of a node's relation as it is in SQL."""
    return node.table.lower()


def metadata_tables(manifest: DbtManifest) -> dict[str, Relation]:
    """Return the metadata tables of all relations, which may be read without being built after them."""
    bounds = [f"readable_metrics.{column}" for column in WITHOUT_PAYLOAD]
    relations = {
        metadata: Relation(tuple((column, NONE) for column in (*columns, *bounds)), ordered=False)
        for metadata, columns in METADATA_TABLES.items()
    }
    return {
        f"{table_name(node)}.{metadata}": relation
        for node in (*manifest.sources.values(), *manifest.nodes.values())
        for metadata, relation in relations.items()
    }


def leaks(lineage: Lineage) -> Iterator[Issue]:
    """Yield raw columns outside the restricted layers, columns in two masks, and pseudonyms without a key version."""
    for node, relation in lineage.readable():
        reached: dict[Flow, set[str]] = {}
        for name, flows in relation.columns:
            for flow in flows:
                reached.setdefault(replace(flow, computed=False), set()).add(name)
        yield from _raw(node, reached)
        yield from _in_two_masks(node, reached)
        yield from _without_key_version(node, reached, relation)


def mislabelled(lineage: Lineage) -> Iterator[Issue]:
    """Yield the columns outside the restricted layers whose yml names another class or mask than has reached them.

    A model whose columns name none makes no statement, unless it is an export: its dictionary does.
    """
    for node, relation in lineage.readable():
        meta = {name: column.meta for name, column in node.columns.items()}
        named = {name: (entry["pii"], entry.get("mask")) for name, entry in meta.items() if "pii" in entry}
        reaching_by_column = {name: {(flow.pii, flow.mask) for flow in flows} for name, flows in relation.columns}
        # What decides on rows is in every column; it has to be named once.
        everywhere = set.intersection(*reaching_by_column.values()) if reaching_by_column else set()
        for name, reaching in reaching_by_column.items():
            stated = {named[name]} if name in named else set()
            if stated - reaching or (node.is_export and (reaching - everywhere) - stated):
                holds = ", ".join(sorted(f"{pii} as {mask}" for pii, mask in reaching)) or "nothing classified"
                yield Issue(f"{node.name}.{name} holds {holds}, which its yml does not declare", LABEL)
        if node.is_export and everywhere - set(named.values()):
            yield Issue(f"{node.name} is grouped by a classified column that its yml does not name", LABEL)


def counted(lineage: Lineage) -> Iterator[Issue]:
    """Yield the counts in manifests whose SQL, in an export's yml, asks for a classified column."""
    by_name = {node.name: node for node in lineage.manifest.nodes.values()}
    for node in lineage.manifest.nodes.values():
        for events in node.meta.get("export", {}).get("counts", ()):
            source = by_name.get(events["from"])
            if source is None or source.unique_id not in lineage.relations:
                continue
            table = table_name(source)
            asked_for = ", ".join(events[name] for name in ("at", "by", "seen_at") if name in events)
            sql = f"select {asked_for} from {table} where {events.get('where') or 'true'}"
            try:
                flows = follow(sql, {table: lineage.relations[source.unique_id]}).everything()
                asked = sorted({flow.column for flow in flows if flow.mask is None})
            except UnsupportedSql as reason:
                asked = [f"SQL that cannot be followed: {reason}"]
            if asked:
                yield Issue(f"{node.name} counts events by {', '.join(asked)}", "Ask for columns without personal data")


def _raw(node: Node, reached: Mapping[Flow, set[str]]) -> Iterator[Issue]:
    for flow, names in reached.items():
        if flow.mask is None:
            ways = ", ".join(masks.load().classes.get(flow.pii, ()))
            yield Issue(
                f"{node.name}: {flow.column} ({flow.pii}) reaches {', '.join(sorted(names))}"
                " without a mask of its class",
                f"Put it through masked() as {ways}" if ways else "Exclude it: it has no mask",
            )


def _in_two_masks(node: Node, reached: Iterable[Flow]) -> Iterator[Issue]:
    for column in sorted({flow.column for flow in reached}):
        ways = sorted({flow.mask for flow in reached if flow.column == column and flow.mask})
        if len(ways) > 1:
            yield Issue(
                f"{node.name}: {column} is masked as {' and as '.join(ways)}, which together reveal more",
                "Keep one of them",
            )


def _without_key_version(node: Node, reached: Iterable[Flow], relation: Relation) -> Iterator[Issue]:
    keeps = node.materialized == "incremental" and any(flow.mask == "pseudonym" for flow in reached)
    if keeps and "key_version" not in dict(relation.columns):
        yield Issue(
            f"{node.name} keeps pseudonyms without the version of the key they were made with",
            "Give it pii_key_version() as key_version: a build after a rotation asks for it",
        )


def _declassified(node: Node, relation: Relation) -> Iterator[Issue]:
    """Yield what a staging model must not give a class: what has one already, and copies of the whole payload.

    A boolean is allowed: it shows only that there is a payload.
    """
    for name, flows in relation.columns:
        column = node.columns.get(name, Column())
        is_free = column.meta.get("pii") == AS_IS and column.data_type != "boolean"
        for flow in flows | relation.indirect:
            if flow.pii != LANDED:
                yield Issue(
                    f"{node.name}.{name} is made of {flow.column}, which has the class {flow.pii} already",
                    "Read sources alone in staging",
                )
            elif flow in flows and is_free and flow.column.split(".")[2] in WHOLE_PAYLOAD:
                yield Issue(
                    f"{node.name}.{name} holds {flow.column}, a copy of the payload, and has the class {AS_IS}",
                    "Leave it out",
                )


def _computed_from_raw(node: Node, columns: Iterable[tuple[str, Flows]]) -> Iterator[Issue]:
    """Yield the columns computed from a raw value: Spark's errors quote what could not be computed; dbt logs them."""
    for name, flows in columns:
        if any(flow.computed and flow.mask is None for flow in flows):
            yield Issue(
                f"{node.name}.{name} is computed from a classified column, whose value an error would quote",
                "Carry such columns as they are and leave computing to masked()",
            )


def in_order(manifest: DbtManifest) -> list[Node]:
    """Return sources, seeds, models, snapshots and tests that store the rows that fail, each after what it reads."""
    nodes = manifest.sources | manifest.nodes
    order = TopologicalSorter({unique_id: node.parents for unique_id, node in nodes.items()}).static_order()
    return [
        node
        for node in (nodes[unique_id] for unique_id in order if unique_id in nodes)
        if node.resource_type in ("source", "seed", "model", "snapshot")
        or node.store_failures
        or node.store_failures_as in ("table", "view")
    ]


def _bronze(name: str, source: Node) -> Relation:
    fields = {*map(str.lower, source.columns), *METADATA}

    # Staging classifies what a topic brings.
    is_landed = "kafka" in source.meta

    def is_none(field: str) -> bool:
        return field in WITHOUT_PAYLOAD or (not is_landed and source.column_meta(field).get("pii") == AS_IS)

    return Relation(
        tuple(
            (field, NONE if is_none(field) else frozenset({Flow(f"{name}.{field}", LANDED)}))
            for field in sorted(fields)
        )
    )


def _as_declared(node: Node, relation: Relation) -> Relation:
    """Return a staging model's columns with the classes that its yml declares, whatever its SQL does."""
    columns: list[tuple[str, Flows]] = []
    for name, _ in relation.columns:
        declared = node.column_meta(name).get("pii", "unclassified")
        raw = Flow(f"{node.name}.{name}", declared, source=node.first_source)
        columns.append((name, NONE if declared == AS_IS else frozenset({raw})))
    return Relation(tuple(columns))
