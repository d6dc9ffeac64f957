"""Names fields that schemas brought and no file has: those without a class, and those that no column can hold."""

from contextlib import suppress

from pyiceberg.catalog import Catalog

from python_common.catalog.catalog import load_table
from python_common.errors import Issue, UserError
from python_dbt.pii.check import require_classified
from python_dbt.pii.declared import maps
from python_dbt.project import Project
from python_ingest.avro.versions import CASE_TWIN
from python_ingest.bronze.schema_state import SchemaState


def unclassified_fields(catalog: Catalog, project: Project) -> list[str]:
    """Return a warning for each field, with its topic.

    Raises:
        UserError: a staging column has no class.
    """
    unknown = require_classified(project.manifest(), catalog)
    return [
        f"the field {field.path} of {field.source.meta['kafka']['topic']} has no PII class and is in no file;"
        " map it in staging with a class, or list it in config.meta.unused"
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
                    issues.append(Issue(f"{text}; {remedy}", object=kafka["topic"], kind="fields"))
    return issues, warnings
