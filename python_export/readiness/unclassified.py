"""Names fields that schemas brought and no file has: those without a class, and those that no column can hold."""

from contextlib import suppress

from pyhive import hive
from pyiceberg.catalog import Catalog
from pyiceberg.types import IcebergType, ListType, MapType, StructType

from python_common.catalog.catalog import load_table
from python_common.errors import Issue, UserError
from python_common.spark import spark_sql
from python_dbt.pii.check import require_classified
from python_dbt.pii.declared import UndeclaredField, maps
from python_dbt.project import Project
from python_export.variables import Choices
from python_ingest.avro.versions import CASE_TWIN
from python_ingest.bronze.schema_state import SchemaState


def unclassified_fields(cursor: hive.Cursor, catalog: Catalog, project: Project) -> list[str]:
    """Return a warning for each field: its name, topic, and the first record that has it.

    Raises:
        UserError: a staging column has no class; or a field has none and LAKEHOUSE_UNCLASSIFIED is `refuse`.
    """
    strict = Choices.of(project.env).unclassified == "refuse"
    unknown = require_classified(project.manifest(), catalog, strict=strict)
    return [
        f"the field {field.path} of {field.source.meta['kafka']['topic']} has no PII class and is in no file"
        f" ({_first(cursor, catalog, field)}); map it in staging with a class, or list it in config.meta.unused"
        for field in unknown
    ]


def omitted_fields(catalog: Catalog, project: Project) -> tuple[list[Issue], list[str]]:
    """Return what is wrong with topics of which staging maps a field that no column can hold, and warnings of others.

    A field that the topic's declaration names in `allow` is published as NULL, with a warning.
    """
    issues, warnings = [], []
    for source in project.manifest().landed:
        kafka = source.meta["kafka"]
        with suppress(UserError):  # of a damaged table, which withholds by itself
            table = load_table(catalog, source.table)
            for path, reason in SchemaState.of(table).omitted_fields():
                text = f"{kafka['topic']}: {path} is omitted, {reason}: it is NULL in the table"
                allowed = any(f"{path}.".startswith(f"{other}.") for other in kafka.get("allow") or ())
                if allowed or reason == CASE_TWIN or not maps(source, path):
                    warnings.append(text)
                else:
                    remedy = f"change the schema, or declare allow: [{path}] to publish without its values"
                    issues.append(Issue(f"{text}; {remedy}", object=kafka["topic"]))
    return issues, warnings


def _first(cursor: hive.Cursor, catalog: Catalog, field: UndeclaredField) -> str:
    table = load_table(catalog, field.source.table)
    # The check has read the field from this table.
    assert table is not None  # noqa: S101
    head, *rest = field.path.split(".")
    [column] = [candidate for candidate in table.schema().fields if candidate.name.lower() == head]
    condition = _is_there(spark_sql.identifier(column.name), column.field_type, rest)
    order = "struct(ingest_batch, kafka_partition, kafka_offset)"
    try:
        [(partition, offset)] = spark_sql.run(
            cursor,
            f"select min_by(kafka_partition, {order}), min_by(kafka_offset, {order})"
            f" from {spark_sql.relation(field.source.table)} where {condition}",
            f"look for {field.path} in {field.source.table}",
        )
    except UserError as error:
        return f"where it begins is not known: {error.message}"
    return "no record has it yet" if offset is None else f"first at offset {offset} of partition {partition}"


def _is_there(value: str, data_type: IcebergType, path: list[str]) -> str:
    """Return in SQL whether a value holds something at a path; lists and maps add no step to it."""
    if isinstance(data_type, StructType):
        head, *rest = path
        [field] = [candidate for candidate in data_type.fields if candidate.name.lower() == head]
        return _is_there(f"{value}.{spark_sql.identifier(field.name)}", field.field_type, rest)
    if isinstance(data_type, ListType):
        return f"exists({value}, item -> {_is_there('item', data_type.element_type, path)})"
    if isinstance(data_type, MapType):
        return f"exists(map_values({value}), item -> {_is_there('item', data_type.value_type, path)})"
    return f"{value} is not null"
