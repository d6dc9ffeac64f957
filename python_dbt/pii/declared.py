"""Default deny: every staging column has a class; staging maps every field of a payload, or it is listed as unused."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING

from pyiceberg.types import IcebergType, StructType

from python_common.errors import Issue, UserError
from python_dbt.manifest import Column, DbtManifest, Node
from python_dbt.pii.flows import RESTRICTED, STAGING, Flow, Flows, Relation
from python_dbt.pii.masks import AS_IS, load, takes
from python_dbt.pii.origins import by_value
from python_dbt.pii.proof import COPIES_OF_PAYLOAD, METADATA, Lineage
from python_ingest.declare.spark_types import children, of_spark

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

# Classes of columns that identify the person a row is about.
PERSONS = ("user", "customer")
# The meta key of a column that with others singles out a person.
QUASI = "quasi"
CLASSIFY = "Map it in staging with a class, or list it in config.meta.unused of the source table"


@dataclass(frozen=True)
class UndeclaredField:
    """A field that a bronze table has and its source does not declare, nested ones by path in lower case."""

    path: str
    source: Node

    @property
    def issue(self) -> Issue:
        """The issue of a check that refuses it."""
        return Issue(f"{self.source.table} has the field {self.path}, which its source does not declare", CLASSIFY)


def unclassified(manifest: DbtManifest, with_types: bool = True) -> Iterator[Issue]:
    """Yield the staging columns whose yml declares no class, an unknown one, or one whose mask does not take the type.

    A wrong type stops no build, so only a check `with_types` reports it.
    """
    classes = load().classes
    for node in (model for model in manifest.models if model.schema == STAGING):
        for name, column in node.columns.items():
            fitting = [pii for pii in classes if column.data_type is None or takes(pii, column.data_type)]
            remedy = f"Declare config.meta.pii as one of {', '.join(fitting)}"
            pii = column.meta.get("pii")
            if pii is None:
                problem = "has no PII class"
            elif pii not in classes:
                problem = f"has the PII class {pii}, which does not exist"
            elif with_types and column.data_type is None and not takes(pii, None):
                problem, remedy = f"has the PII class {pii} and no data_type", "Declare the type that its mask takes"
            elif with_types and pii not in fitting:
                problem = f"has the PII class {pii}, whose mask does not take {column.data_type}"
            else:
                continue
            yield Issue(f"{node.name}.{name} {problem}", remedy)


def broken_promises(manifest: DbtManifest) -> Iterator[Issue]:
    """Yield the readable columns that are named as behind a mask and hold a staging column without it.

    The class `none` has one mask, `as_is`. A suffix that is no mask's name promises any mask.
    """
    for node, name, flows in _readable_by_value(manifest):
        promised = [(mask, end) for mask, end in load().suffixes.items() if f"_{name}".endswith(f"_{end}")]
        for (mask, end), flow in product(promised, flows):
            is_kept = flow.mask == mask or (flow.mask is not None and end != mask)
            # A seed holds no person, and has no source.
            if flow.source and not (is_kept or flow.computed or flow.column.replace(".", "_").endswith(f"_{end}")):
                holds = f"holds {flow.column} ({flow.pii}) {flow.mask or 'as it is'}"
                remedy = f"Give {flow.column} the class that has this mask, or the column another name"
                yield Issue(f"{node.name}.{name} {holds}, and its name promises {mask}", remedy)


def _readable_by_value(manifest: DbtManifest) -> Iterator[tuple[Node, str, Flows]]:
    """Yield the columns outside of the restricted layers with the columns of staging models and seeds in them."""

    def as_declared(node: Node, relation: Relation) -> Relation:
        if node.schema != STAGING and node.compiled_code:
            return relation
        flows = {
            name: Flow(f"{node.name}.{name}", column.meta.get("pii", AS_IS), source=node.first_source)
            for name, column in node.columns.items()
        }
        return Relation(tuple((name.lower(), frozenset({flow})) for name, flow in flows.items()))

    for unique_id, relation in by_value(manifest, as_declared).items():
        node = manifest.nodes.get(unique_id)
        if node is not None and node.schema not in RESTRICTED:
            yield from ((node, name, flows) for name, flows in relation.columns)


def with_former_classes(former: Lineage, lineage: Lineage) -> DbtManifest:
    """Return the manifest with the classes that its staging columns, or the fields in them, had in a former one."""
    classes: dict[str, str] = {}
    for node, name, fields in former.staging_columns():
        pii = node.column_meta(name).get("pii", AS_IS)
        of_payload = {field for field in fields if field.split(".")[2] not in COPIES_OF_PAYLOAD}
        classes |= dict.fromkeys({f"{node.name}.{name}", *of_payload} if pii != AS_IS else (), pii)
    nodes = dict(lineage.manifest.nodes)
    for node, name, fields in lineage.staging_columns():
        known = [classes[key] for key in (f"{node.name}.{name}", *sorted(fields)) if key in classes]
        if known:
            columns = nodes[node.unique_id].columns
            column = replace(columns.get(name, Column()), meta={**node.column_meta(name), "pii": known[0]})
            nodes[node.unique_id] = replace(node, columns={**columns, name: column})
    return replace(lineage.manifest, nodes=nodes)


def undeclared_columns(lineage: Lineage) -> Iterator[Issue]:
    """Yield the columns that the SQL of a staging model gives and its yml does not have."""
    for node, name, _ in lineage.staging_columns():
        if name not in node.columns:
            yield Issue(
                f"{node.name}.{name or '<a column without name>'} is not in the model's yml",
                "Declare it there, with its PII class",
            )


def unmapped(lineage: Lineage) -> Iterator[Issue]:
    """Yield payload fields that staging neither maps nor lists as unused, and those of which both is the case."""
    read = {field for _, _, fields in lineage.staging_columns() for field in fields}
    for source in lineage.manifest.landed:
        table = source.table.lower()
        unused = _unused(source)
        for field in sorted(_declared_fields(source)):
            mapped = any(_is_or_holds(f"{table}.{field}", other) for other in read)
            if not mapped and not _listed(field, unused):
                yield Issue(f"{table} has the field {field}, which staging does not map", CLASSIFY)
            if mapped and _listed(field, unused):
                yield Issue(
                    f"{table} lists the field {field} as unused, but staging maps it", "Take it off config.meta.unused"
                )


def conflicting_classes(lineage: Lineage) -> Iterator[Issue]:
    """Yield payload fields that reach staging columns of different classes: one of them understates it."""
    classes: dict[str, dict[str, str]] = {}
    for node, name, fields in lineage.staging_columns():
        for field in fields:
            if field.split(".")[2] not in COPIES_OF_PAYLOAD:
                classes.setdefault(field, {})[f"{node.name}.{name}"] = node.column_meta(name).get("pii", AS_IS)
    for field, columns in classes.items():
        if len(set(columns.values())) > 1:
            listed = ", ".join(f"{column} ({declared})" for column, declared in columns.items())
            yield Issue(f"{field} has one class, but is in {listed}", "Give these columns the same class")


def missing_subjects(lineage: Lineage) -> Iterator[Issue]:
    """Yield the columns with a person's id or pseudonym that no `subjects` declares: an erasure must search them."""
    subjects = {source.table.lower(): source.meta.get("subjects", {}) for source in lineage.manifest.landed}
    for node, name, fields in lineage.staging_columns():
        kind = node.column_meta(name).get("pii")
        for schema, table, path in (field.split(".", 2) for field in sorted(fields if kind in PERSONS else ())):
            declared = subjects.get(f"{schema}.{table}", {}).get(kind, [])
            columns = declared["columns"] if isinstance(declared, dict) else declared
            if path not in map(str.lower, columns):
                yield Issue(
                    f"{schema}.{table} has the id of a {kind} in {path}, and no subjects declares it",
                    f"Add it to config.meta.subjects.{kind} of the source table",
                )
    for unique_id in sorted(lineage.relations.keys() & lineage.manifest.nodes.keys()):
        node = lineage.manifest.nodes[unique_id]
        for name, flows in lineage.relations[unique_id].columns if node.is_export else ():
            meta = node.column_meta(name)
            # What decides on rows is in every column, computed.
            is_labelled = meta.get("pii") in PERSONS and meta.get("mask") == "pseudonym"
            kinds = {
                f"{flow.source}.{flow.pii}"
                for flow in flows
                if flow.pii in PERSONS and flow.mask == "pseudonym" and (is_labelled or not flow.computed)
            }
            for kind in sorted(kinds - {*meta.get("subjects", ())}):
                yield Issue(
                    f"{node.name}.{name} has the pseudonym of a {kind}, and no subjects declares it",
                    f"Add {kind} to config.meta.subjects of the column",
                )


def unlabelled_quasi_identifiers(manifest: DbtManifest) -> Iterator[Issue]:
    """Yield the columns of exports that a quasi-identifier of staging flows into by value and whose yml is silent."""
    described = ((node, name, column) for node in manifest.nodes.values() for name, column in node.columns.items())
    quasi = {f"{node.name}.{name}" for node, name, column in described if column.meta.get(QUASI)}
    for node, name, flows in _readable_by_value(manifest):
        sources = ", ".join(sorted({flow.column for flow in flows} & quasi))
        if node.is_export and sources and not node.column_meta(name).get(QUASI):
            yield Issue(
                f"{node.name}.{name} holds {sources}, a quasi-identifier, which its yml does not declare",
                f"Set config.meta.{QUASI} of the column to true",
            )


def undeclared_fields(manifest: DbtManifest, catalog: "Catalog") -> Iterator[UndeclaredField]:
    """Yield the fields that bronze tables have and no source declares: a later schema version brought them."""
    # Importing a catalog takes a second, and the check of code needs none.
    from python_common.catalog.catalog import load_table  # noqa: PLC0415

    for source in manifest.landed:
        try:
            table = load_table(catalog, source.table)
        except UserError:
            # Nothing can read a damaged table, so nothing leaks from it.
            table = None
        if table is None:
            continue
        declared, unused = _declared_fields(source), _unused(source)
        for column in table.schema().fields:
            for field in _fields(column.name.lower(), column.field_type):
                is_own = column.name.lower() in METADATA
                if not is_own and field not in declared and not _listed(field, unused):
                    yield UndeclaredField(field, source)


def maps(source: Node, field: str) -> bool:
    """Return whether staging maps a payload field, a part of it, or what holds it: all that is declared and in use."""
    unused = _unused(source)
    return any(_is_or_holds(field.lower(), other) for other in _declared_fields(source) if not _listed(other, unused))


def is_unused(source: Node, field: str) -> bool:
    """Return whether a source lists a payload field, or what holds it, as unused."""
    return _listed(field.lower(), _unused(source))


def _unused(source: Node) -> list[str]:
    return [field.lower() for field in source.meta.get("unused", [])]


def _listed(field: str, fields: list[str]) -> bool:
    return any(field == other or field.startswith(f"{other}.") for other in fields)


def _is_or_holds(field: str, other: str) -> bool:
    return field == other or field.startswith(f"{other}.") or other.startswith(f"{field}.")


def _declared_fields(source: Node) -> set[str]:
    """Return the payload fields of a source table, nested ones by path."""
    return {
        field
        for name, column in source.columns.items()
        if name.lower() not in METADATA
        for field in _fields(name.lower(), _type(source, name, column.data_type or ""))
    }


def _type(source: Node, column: str, text: str) -> IcebergType:
    try:
        return of_spark(text)
    except ValueError as error:
        raise UserError(f"{source.table}.{column}: {error}", "Correct its data_type in the yml of the source") from None


def _fields(path: str, column: IcebergType) -> Iterator[str]:
    """Yield the paths of the leaves of a type; lists and maps add no step to a path."""
    fields = children(column)
    if not fields:
        yield path
    for name, part in fields.items():
        yield from _fields(f"{path}.{name.lower()}" if isinstance(column, StructType) else path, part)
