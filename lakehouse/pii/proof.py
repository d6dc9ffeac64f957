"""The proof that no classified column leaves the restricted layers raw, over dbt's manifest with compiled SQL."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from graphlib import TopologicalSorter

from lakehouse.manifest import Column, DbtManifest, Node
from lakehouse.pii.lineage import follow
from lakehouse.pii.masks import AS_IS, Masks
from lakehouse.pii.problem import RESTRICTED, STAGING, Problem
from lakehouse.pii.traces import LANDED, MASKING_KEY, NONE, Relation, Trace, Traces, Unfollowed

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


LABEL = "Set config.meta.pii and config.meta.mask of the column: the dictionary of the published file says them"


@dataclass(frozen=True)
class Project:
    """A project whose columns have been followed.

    `relations` are those that readers see, by dbt's unique id; `landed` tells per staging model which bronze fields
    each of its columns is made of; `problems` are the models that cannot be followed.
    """

    relations: dict[str, Relation]
    landed: dict[str, dict[str, set[str]]]
    problems: list[Problem]


def trace(manifest: DbtManifest, masks: Masks) -> Project:
    """Follow every column of a compiled project from bronze to where it is read."""
    tables = {PADS: Relation((("value", frozenset({MASKING_KEY})),)), **metadata_tables(manifest)}
    project = Project({}, {}, [])
    for node in in_order(manifest):
        name = table_name(node)
        try:
            if node.resource_type == "source":
                relation = _bronze(name, node)
            elif node.resource_type == "seed":
                relation = Relation(tuple((column.lower(), NONE) for column in node.columns))
            elif not node.compiled_code:
                raise Unfollowed("the dbt command did not compile it; `dbt compile` compiles all")
            else:
                relation = follow(node.compiled_code, tables, masks)
        except Unfollowed as reason:
            project.problems.append(
                Problem(
                    f"{node.name} cannot be followed, {reason}",
                    "Write it in SQL that lakehouse/pii/lineage.py knows, or teach it what is missing",
                )
            )
            continue
        if node.meta.get(DISTINCT_COUNTS):
            relation = relation.without_counts()
        if node.schema == STAGING:
            project.problems.extend(_launders(node, relation))
            project.landed[node.unique_id] = {
                column: {trace.column for trace in traces if trace.pii == LANDED} for column, traces in relation.columns
            }
            declared = _as_declared(node, relation)
            classified = {column for column, traces in declared.columns if traces}
            project.problems.extend(_quotes(node, [column for column in relation.columns if column[0] in classified]))
            relation = declared
        elif node.schema in RESTRICTED:
            project.problems.extend(_quotes(node, relation.flat().columns))
        relation = project.relations[node.unique_id] = relation.flat()
        tables[name] = relation
    return project


def table_name(node: Node) -> str:
    """Return the name of a node's relation as it stands in SQL."""
    return node.table.lower()


def metadata_tables(manifest: DbtManifest) -> dict[str, Relation]:
    """Return the metadata tables of all relations, which may be read without being built after them."""
    bounds = [f"readable_metrics.{column}" for column in WITHOUT_PAYLOAD]
    return {
        f"{table_name(node)}.{metadata}": Relation(tuple((column, NONE) for column in (*columns, *bounds)))
        for node in (*manifest.sources.values(), *manifest.nodes.values())
        for metadata, columns in METADATA_TABLES.items()
    }


def leaks(manifest: DbtManifest, project: Project, masks: Masks) -> Iterator[Problem]:
    """Yield what is wrong with the columns outside the restricted layers."""
    for unique_id, relation in project.relations.items():
        node = manifest.nodes.get(unique_id)
        if node is not None and node.schema not in RESTRICTED:
            places: dict[Trace, set[str]] = {}
            for name, traces in relation.columns:
                for found in traces:
                    places.setdefault(replace(found, computed=False), set()).add(name)
            yield from _raw(node, places, masks)
            yield from _in_two_masks(node, places)
            yield from _without_key_version(node, places, relation)


def mislabelled(manifest: DbtManifest, project: Project) -> Iterator[Problem]:
    """Yield the columns outside the restricted layers whose yml names another class or mask than has reached them.

    A model whose columns name none makes no statement, unless it is an export: its dictionary does.
    """
    for unique_id, relation in project.relations.items():
        node = manifest.nodes.get(unique_id)
        if node is None or node.schema in RESTRICTED:
            continue
        meta = {name: column.meta for name, column in node.columns.items()}
        named = {name: (entry["pii"], entry.get("mask")) for name, entry in meta.items() if "pii" in entry}
        found = {name: {(trace.pii, trace.mask) for trace in traces} for name, traces in relation.columns}
        is_export = "export" in node.meta
        # What decides on rows is in every column; it has to be named once.
        everywhere = set.intersection(*found.values()) if found else set()
        for name, reaching in found.items():
            stated = {named[name]} if name in named else set()
            if stated - reaching or (is_export and (reaching - everywhere) - stated):
                holds = ", ".join(sorted(f"{pii} as {mask}" for pii, mask in reaching)) or "nothing classified"
                yield Problem(f"{node.name}.{name} holds {holds}, which its yml does not say", LABEL)
        if is_export and everywhere - set(named.values()):
            yield Problem(f"{node.name} is grouped by a classified column that its yml does not name", LABEL)


def counted(manifest: DbtManifest, project: Project, masks: Masks) -> Iterator[Problem]:
    """Yield the counts in manifests whose SQL, in an export's yml, asks for a classified column."""
    by_name = {node.name: node for node in manifest.nodes.values()}
    for node in manifest.nodes.values():
        export = node.meta.get("export", {})
        events = [(kind, said) for kind in ("quarantined", "late") for said in export.get(kind, ())]
        for kind, said in events:
            source = by_name.get(said["from"])
            if source is None or source.unique_id not in project.relations:
                continue
            table = table_name(source)
            asked_for = ", ".join(said[name] for name in ("at", "by", "seen_at") if name in said)
            sql = f"select {asked_for} from {table} where {said.get('where') or 'true'}"
            try:
                found = follow(sql, {table: project.relations[source.unique_id]}, masks).everything()
                asked = sorted({trace.column for trace in found if trace.mask is None})
            except Unfollowed as reason:
                asked = [f"what nobody knows: {reason}"]
            if asked:
                yield Problem(
                    f"{node.name} counts as {kind} by {', '.join(asked)}", "Ask for columns without personal data"
                )


def _raw(node: Node, places: Mapping[Trace, set[str]], masks: Masks) -> Iterator[Problem]:
    for found, names in places.items():
        if found.mask is None:
            ways = ", ".join(masks.classes.get(found.pii, ()))
            yield Problem(
                f"{node.name}: {found.column} ({found.pii}) reaches {', '.join(sorted(names))}"
                " without a mask of its class",
                f"Put it through masked() as {ways}" if ways else "Leave it out: it has no mask",
            )


def _in_two_masks(node: Node, places: Iterable[Trace]) -> Iterator[Problem]:
    for column in sorted({found.column for found in places}):
        ways = sorted({found.mask for found in places if found.column == column and found.mask})
        if len(ways) > 1:
            yield Problem(
                f"{node.name}: {column} stands there as {' and as '.join(ways)}, which say more together",
                "Keep one of them",
            )


def _without_key_version(node: Node, places: Iterable[Trace], relation: Relation) -> Iterator[Problem]:
    keeps = node.materialized == "incremental" and any(found.mask == "pseudonym" for found in places)
    if keeps and "key_version" not in dict(relation.columns):
        yield Problem(
            f"{node.name} keeps pseudonyms without the version of the key they were made with",
            "Give it pii_key_version() as key_version: a build after a rotation asks for it",
        )


def _launders(node: Node, relation: Relation) -> Iterator[Problem]:
    """Yield what a staging model would give a class of its own, though it may not.

    Another model gave it one, or it is a copy of the whole payload, of which a boolean says no more than that there is
    one.
    """
    for name, traces in relation.columns:
        column = node.columns.get(name, Column())
        is_free = column.meta.get("pii") == AS_IS and column.data_type != "boolean"
        for found in traces | relation.steering:
            if found.pii != LANDED:
                yield Problem(
                    f"{node.name}.{name} is made of {found.column}, which has the class {found.pii} already",
                    "Read sources alone in staging",
                )
            elif found in traces and is_free and found.column.split(".")[2] in WHOLE_PAYLOAD:
                yield Problem(
                    f"{node.name}.{name} holds {found.column}, a copy of the payload, and has the class {AS_IS}",
                    "Leave it out",
                )


def _quotes(node: Node, columns: Iterable[tuple[str, Traces]]) -> Iterator[Problem]:
    """Yield the columns computed from a raw value: Spark's errors quote what could not be computed; dbt logs them."""
    for name, traces in columns:
        if any(found.computed and found.mask is None for found in traces):
            yield Problem(
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
    fields = {column.lower() for column in source.columns} | set(WITHOUT_PAYLOAD) | set(COPIES_OF_PAYLOAD)
    return Relation(
        tuple(
            (field, NONE if field in WITHOUT_PAYLOAD else frozenset({Trace(f"{name}.{field}", LANDED)}))
            for field in sorted(fields)
        )
    )


def _as_declared(node: Node, relation: Relation) -> Relation:
    """Return a staging model's columns with the classes that its yml declares, whatever its SQL does."""
    columns: list[tuple[str, Traces]] = []
    # Unique ids are source.<project>.<source>.<table>.
    sources = [name.split(".")[2] for name in node.parents if name.startswith("source.")]
    for name, _ in relation.columns:
        declared = node.column_meta(name).get("pii", "unclassified")
        raw = Trace(f"{node.name}.{name}", declared, source=sources[0] if sources else "")
        columns.append((name, NONE if declared == AS_IS else frozenset({raw})))
    return Relation(tuple(columns))
