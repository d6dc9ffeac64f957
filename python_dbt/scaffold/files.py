"""Writes the models of a new topic into the project, and their lines into the lists of macros/topics.sql."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import cache, cached_property
from pathlib import Path

import yaml
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from python_common.errors import UserError
from python_dbt.pii import masks
from python_dbt.scaffold.columns import Column
from python_ingest.declare.spark_types import in_spark
from python_ingest.declare.table_layout import METADATA_COLUMNS
from python_ingest.declare.topics import read_declarations

POSITION = {
    name: in_spark(METADATA_COLUMNS[name])
    for name in (
        "kafka_timestamp",
        "kafka_generation",
        "kafka_partition",
        "kafka_offset",
        "ingest_batch",
        "ingested_at",
    )
}
DOCS = Path("models/docs/columns.md")
TOPICS = Path("macros/topics.sql")
# What a line of a list comes before, and the line.
LISTS = (
    (
        "\n    ] %}\n    {{ caller(topic) }}",
        "\n        dict(source='<< new.source >>', table='<< new.table >>', staged='<< new.models.staging >>',"
        "\n            key='<< new.key >>', deduplicated='<< new.models.deduplicated >>'),",
    ),
    (
        "\n    ] %}\n    {{ caller(dataset) }}",
        "\n        dict(name='<< new.entity >>', mart='<< new.models.mart >>',"
        "\n            week='<< new.week >>'<< \", key_version='key_version'\" if new.has_pseudonyms else '' >>),",
    ),
)


class UpTo(StrEnum):
    """The last model of a topic that is written; those before it are written, too."""

    MASKED = "masked"
    MART = "mart"
    EXPORT = "export"


@dataclass(frozen=True)
class New:
    """A new topic: names of what its models are made of, and its columns.

    `key_column` identifies a row, None if each record is one; `at_column` has the event time, None for the record's.
    """

    topic: str
    source: str
    entity: str
    key_format: str
    key_type: str
    columns: list[Column]
    key_column: Column | None
    at_column: Column | None

    @property
    def table(self) -> str:
        """The bronze table."""
        name = re.sub(r"\W", "_", self.topic).lower()
        return name if name[0].isalpha() else f"topic_{name}"

    @property
    def models(self) -> dict[str, str]:
        """The names of its models, by layer."""
        return {
            "staging": f"stg_{self.source}__{self.entity}",
            "deduplicated": f"int_{self.entity}_deduplicated",
            "masked": f"int_{self.entity}_masked",
            "mart": f"fct_{self.entity}",
            "export": f"exp_weekly__{self.entity}",
        }

    @property
    def key(self) -> str:
        """The column that identifies a row."""
        return self.key_column.name if self.key_column else f"{self.entity.removesuffix('s')}_key"

    @property
    def at(self) -> str:
        """The column of the event time."""
        return self.at_column.name if self.at_column else "recorded_at"

    @property
    def week(self) -> str:
        """The column of the week."""
        return f"{self.at.removesuffix('_at')}_week"

    @property
    def metadata(self) -> dict[str, str]:
        """The columns of the ingester, with their types."""
        return {name: in_spark(column) for name, column in METADATA_COLUMNS.items()} | {"kafka_key": self.key_type}

    @property
    def subjects(self) -> dict[str, list[str]]:
        """The fields with the id of a person, by class."""
        persons = [column for column in self.columns if column.pii in ("user", "customer")]
        return {one.pii: [other.field for other in persons if other.pii == one.pii] for one in persons}

    @cached_property
    def staged(self) -> list[tuple[str, str, str, bool]]:
        """The columns of staging: name, type, class, and whether that is guessed."""
        return [
            *([] if self.key_column else [(self.key, "string", masks.AS_IS, False)]),
            *((column.name, column.type, column.pii, column.is_guessed) for column in self.columns),
            *([] if self.at_column else [(self.at, "timestamp", masks.AS_IS, False)]),
            ("is_event_time_valid", "boolean", masks.AS_IS, False),
            *((name, its_type, masks.AS_IS, False) for name, its_type in POSITION.items()),
        ]

    @property
    def has_pseudonyms(self) -> bool:
        """Whether a column is a pseudonym, which depends on the masking key."""
        return any(column.output and column.output.mask == "pseudonym" for column in self.columns)

    @cached_property
    def outputs(self) -> list[tuple[str, str]]:
        """The columns behind the masks, with their types."""
        return [
            *([] if self.key_column else [(self.key, "string")]),
            *((column.output.name, column.output.type) for column in self.columns if column.output),
            *([("key_version", "string")] if self.has_pseudonyms else []),
            *([] if self.at_column else [(self.at, "timestamp")]),
            ("is_event_time_valid", "boolean"),
        ]

    @property
    def published(self) -> list[tuple[str, str]]:
        """The columns of the export but for the week: an event with a week has a valid time."""
        return [(name, its_type) for name, its_type in self.outputs if name != "is_event_time_valid"]

    @property
    def required(self) -> set[str]:
        """The columns of the mart that are never NULL."""
        return {self.key, "key_version", "is_event_time_valid", *([] if self.at_column else [self.at])}

    def declared(self, name: str, is_required: bool) -> str:
        """Return the config.meta of a column of the export."""
        outputs = {column.output.name: column.output for column in self.columns if column.output and column.output.mask}
        output = outputs.get(name)
        entries = []
        if output:
            entries += [f"pii: {output.pii}", f"mask: {output.mask}"]
            entries += [f"subjects: [{self.source}.{output.pii}]"] if output.pii in self.subjects else []
        entries += ["unit: UTC instant"] if name == self.at else []
        entries += [] if is_required else ['nullable: "optional in the source"']
        return ", ".join(entries)

    def example(self, number: int) -> str:
        """Return a value of the key for a unit test."""
        return str(number) if self.key_column and self.key_column.type == "bigint" else f"key{number}"

    def described(self) -> Iterator[tuple[str, str]]:
        """Yield columns that need a description, and a first one."""
        yield self.key, "Kafka partition and offset of the record, because it has no key."
        for column in self.columns:
            yield column.name, column.description
            if column.output and column.output.mask:
                yield column.output.name, column.output.description
        yield self.at, "Kafka timestamp of the record, because it has no event time."
        yield self.week, f"ISO week of {self.at}, for instance 2026-W47; it begins on Monday at 00:00 UTC."


def new_topic(
    topic: str,
    source: str,
    entity: str,
    columns: tuple[str, str, list[Column]],
    key: str | None,
    at: str | None,
) -> New:
    """Return a new topic from its columns, as `columns.read` has them; a UserError if a name or column is unfit."""
    if not re.fullmatch("[a-z]+", source):
        raise UserError(f"'{source}' is not a source name", "Use a to z")
    if not re.fullmatch("[a-z][a-z_]*s", entity):
        raise UserError(f"'{entity}' is not a plural name", "Use a plural of a to z and _, for instance returns")
    key_format, key_type, payload_columns = columns
    first = next((one.name for one in payload_columns if one.type == "timestamp" and one.pii == masks.AS_IS), None)
    key_column = _column(payload_columns, key, ("string", "bigint"))
    at_column = _column(payload_columns, at or first, ("timestamp",))
    return New(topic, source, entity, key_format, key_type, payload_columns, key_column, at_column)


def _column(columns: list[Column], name: str | None, types: tuple[str, ...]) -> Column | None:
    if name is None:
        return None
    fit = {column.name: column for column in columns if column.type in types and column.pii == masks.AS_IS}
    if name not in fit:
        names = ", ".join(fit) or "none: leave the option out, or give a column the class none"
        raise UserError(
            f"{name} is not a column of type {' or '.join(types)} without personal data", f"Choose from {names}"
        )
    return fit[name]


def write(project: Path, new: New, up_to: UpTo = UpTo.EXPORT) -> list[Path]:
    """Write the models of a topic, and return the files that are new or changed, relative to the project.

    Nothing is written unless all of it can be.

    Raises:
        UserError: a model of its name is there, or a list has another form than the released one.
    """
    for other in read_declarations(project / "models"):
        if new.topic == other.topic or f"bronze.{new.table}" == other.identifier:
            raise UserError(f"{other.topic} is declared already, with the table {other.identifier}", "Edit its models")
    texts = {Path(file): _rendered(template, new) for file, template in _files(new, up_to).items()}
    if there := [str(file) for file in texts if (project / file).exists()]:
        raise UserError(f"{', '.join(there)}: there already", "Choose another --entity or --source, or delete them")
    sources = Path(f"models/staging/{new.source}/_{new.source}__sources.yml")
    is_known = (project / sources).exists()
    texts[sources] = (project / sources).read_text() if is_known else _rendered("source.yml.j2", new)
    texts[sources] += _rendered("table.yml.j2", new)
    if yaml.safe_load(texts[sources])["sources"][-1]["tables"][-1]["name"] != new.table:
        raise UserError(f"{sources} does not end with its tables", "Move them to its end, or choose another --source")
    texts[TOPICS] = (project / TOPICS).read_text()
    for before, line in LISTS if up_to == UpTo.EXPORT else LISTS[:1]:
        if texts[TOPICS].count(before) != 1:
            raise UserError(
                f"{TOPICS} has another form than expected", "Add the topic there by hand, as for another one"
            )
        added = _environment().from_string(line).render(new=new)
        texts[TOPICS] = texts[TOPICS].replace(before, added + before)
    docs = (project / DOCS).read_text()
    for name, description in new.described():
        if f"{{% docs {name} %}}" not in docs:
            docs += f"\n{{% docs {name} %}}\n{description}\n{{% enddocs %}}\n"
    texts[DOCS] = docs
    for file, text in texts.items():
        (project / file).parent.mkdir(parents=True, exist_ok=True)
        (project / file).write_text(text)
    return sorted(texts)


def _files(new: New, up_to: UpTo) -> dict[str, str]:
    """Return the templates of the models, by file."""
    templates = {
        f"models/staging/{new.source}/{new.models['staging']}": "stg",
        f"models/intermediate/deduplicated/{new.models['deduplicated']}": "int_deduplicated",
        f"models/intermediate/masked/{new.models['masked']}": "int_masked",
    }
    if up_to != UpTo.MASKED:
        templates[f"models/marts/{new.models['mart']}"] = "fct"
    if up_to == UpTo.EXPORT:
        templates[f"models/exports/{new.models['export']}"] = "exp"
    return {f"{path}.{kind}": f"{name}.{kind}.j2" for path, name in templates.items() for kind in ("sql", "yml")}


@cache
def _environment() -> Environment:
    # What dbt renders is in the text of these templates.
    environment = Environment(  # noqa: S701 - SQL and YAML
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        block_start_string="<%",
        block_end_string="%>",
        variable_start_string="<<",
        variable_end_string=">>",
        comment_start_string="<#",
        comment_end_string="#>",
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=StrictUndefined,
    )
    environment.filters["quoted"] = _quoted
    return environment


def _quoted(text: str) -> str:
    """Return a text as YAML has it: of some words, such as no and 1, it makes something else."""
    is_plain = re.fullmatch(r"[\w.-]+", text) and isinstance(yaml.safe_load(text), str)
    return text if is_plain else f"'{text}'"


def _rendered(template: str, new: New) -> str:
    return _environment().get_template(template).render(new=new)
