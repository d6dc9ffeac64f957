"""Writes the models of a new topic into the project, and their lines into the lists of macros/topics.sql."""

import math
import re
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import yaml
from dbt_common.clients.jinja import extract_toplevel_blocks
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from python_common.errors import UserError
from python_dbt.pii import masks
from python_dev.scaffold.columns import UNCLASSIFIED, Output, StagingColumn, description, unique, unused
from python_dev.scaffold.schema import ScaffoldedTopic
from python_ingest.declare.spark_types import in_spark
from python_ingest.declare.table_layout import METADATA_COLUMNS
from python_ingest.declare.topics import read_declarations

METADATA = {name: in_spark(column) for name, column in METADATA_COLUMNS.items()}
POSITION = ("kafka_timestamp", "kafka_generation", "kafka_partition", "kafka_offset", "ingest_batch", "ingested_at")
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
# The longest lines that `make lint` passes.
LONGEST_SQL, LONGEST_YAML = 100, 200


@dataclass(frozen=True)
class New:
    """A new topic: names of what its models are made of, and its columns.

    `key` identifies a row: `key_column`, None if each record is one. `at` has the event time, whose week is `week`:
    `at_column`, None for the record's time.
    """

    topic: ScaffoldedTopic
    source: str
    entity: str
    columns: list[StagingColumn]
    key_column: StagingColumn | None
    at_column: StagingColumn | None
    key: str
    at: str
    week: str

    @property
    def table(self) -> str:
        """The bronze table."""
        name = re.sub(r"\W", "_", self.topic.name).lower()
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
    def landed(self) -> str:
        """The rows of bronze in staging's SQL: no field has this name."""
        return unique("landed", {field.path.lower() for field in self.topic.fields})

    @property
    def subjects(self) -> dict[str, list[str]]:
        """The fields with the id of a person, by class."""
        persons = [column for column in self.columns if column.pii in ("user", "customer")]
        return {one.pii: [other.leaf.path for other in persons if other.pii == one.pii] for one in persons}

    @cached_property
    def staged(self) -> list[tuple[str, str, str]]:
        """The columns of staging: name, type and class."""
        others = [*([] if self.at_column else [(self.at, "timestamp")]), ("is_event_time_valid", "boolean")]
        others += [(name, METADATA[name]) for name in POSITION]
        return [
            *([] if self.key_column else [(self.key, "string", masks.AS_IS)]),
            *((column.name, column.type, column.pii) for column in self.columns),
            *((name, its_type, masks.AS_IS) for name, its_type in others),
        ]

    @property
    def has_pseudonyms(self) -> bool:
        """Whether a column is a pseudonym, which depends on the masking key."""
        return any(column.output and column.output.mask == "pseudonym" for column in self.columns)

    @cached_property
    def outputs(self) -> list[Output]:
        """The columns behind the masks."""
        key = Output(self.key, "string", "Kafka partition and offset of the record, which has no other key.")
        at = Output(self.at, "timestamp", "Kafka timestamp of the record, because it has no event time.")
        return [
            *([] if self.key_column else [key]),
            *(column.output for column in self.columns if column.output),
            *([Output("key_version", "string", "")] if self.has_pseudonyms else []),
            *([] if self.at_column else [at]),
            Output("is_event_time_valid", "boolean", ""),
        ]

    @property
    def descriptions(self) -> dict[str, str]:
        """The descriptions of the columns of its mart and export."""
        return {
            **{output.name: output.description for output in self.outputs if output.description},
            self.week: f"ISO week of {self.at}, for instance 2026-W47; it begins on Monday at 00:00 UTC.",
        }


def new_topic(
    topic: ScaffoldedTopic,
    source: str,
    entity: str,
    columns: list[StagingColumn],
    key: str | None = None,
    at: str | None = None,
) -> New:
    """Return a new topic from its columns; a UserError if a name or column is unfit."""
    if not re.fullmatch("[a-z][a-z0-9]*(_[a-z0-9]+)*", source):
        raise UserError(f"'{source}' is not a source name", "Use a to z, digits and _, for instance crm2")
    if not re.fullmatch("[a-z][a-z_]*s", entity):
        raise UserError(f"'{entity}' is not a plural name", "Use a plural of a to z and _, for instance returns")
    first = next((one.name for one in columns if one.type == "timestamp" and one.pii == masks.AS_IS), None)
    key_column = _column(columns, key, "key", ("string", "bigint"))
    at_column = _column(columns, at or first, "at", ("timestamp",))
    taken = {name for one in columns for name in (one.name, one.output.name if one.output else one.name)}
    key = key_column.name if key_column else unique(f"{entity.removesuffix('s')}_key", taken)
    at = at_column.name if at_column else unique("recorded_at", taken)
    week = unique(f"{at.removesuffix('_at')}_week", taken)
    return New(topic, source, entity, columns, key_column, at_column, key, at, week)


def _column(
    columns: list[StagingColumn], name: str | None, option: str, types: tuple[str, ...]
) -> StagingColumn | None:
    if name is None:
        return None
    fit = {one.name: one for one in columns if one.as_is in types and one.pii in (masks.AS_IS, UNCLASSIFIED)}
    if name not in fit:
        raise UserError(
            f"{name} is not a column of type {' or '.join(types)} without personal data",
            f"Choose --{option} from {', '.join(fit)}" if fit else f"Leave --{option} out",
        )
    if fit[name].pii == UNCLASSIFIED:
        raise UserError(
            f"--{option} {name} would be published, and {name} has no class",
            f"Add --pii {name}={masks.AS_IS} if it is no personal data, or else leave --{option} out",
        )
    return fit[name]


def described(project: Path) -> dict[str, str]:
    """Return the descriptions that a project has, by the name of their docs block."""
    texts = [file.read_text() for file in sorted((project / "models").rglob("*.md"))]
    blocks: list[Any] = [block for text in texts for block in extract_toplevel_blocks(text, {"docs"}, False)]
    return {block.block_name: block.contents.strip() for block in blocks}


def write(project: Path, new: New) -> list[Path]:
    """Write the models of a topic, and return the files that are new or changed, relative to the project.

    Nothing is written unless all of it can be.

    Raises:
        UserError: a model of its name is there, or a list has another form than the released one.
    """
    for other in read_declarations(project / "models"):
        if new.topic.name == other.topic or f"bronze.{new.table}" == other.identifier:
            raise UserError(
                f"{other.topic} is declared already, with the table {other.identifier}",
                "Edit its models; or delete the table from its source file if it has none",
            )
    texts = {Path(file): _rendered(template, new) for file, template in _files(new).items()}
    if there := [str(file) for file in texts if (project / file).exists()]:
        raise UserError(f"{', '.join(there)}: there already", "Choose another --entity or --source, or delete them")
    sources = Path(f"models/staging/{new.source}/_{new.source}__sources.yml")
    is_known = (project / sources).exists()
    texts[sources] = (project / sources).read_text() if is_known else _rendered("source.yml.j2", new)
    texts[sources] += _rendered("table.yml.j2", new)
    if yaml.safe_load(texts[sources])["sources"][-1]["tables"][-1]["name"] != new.table:
        raise UserError(f"{sources} does not end with its tables", "Move them to its end, or choose another --source")
    texts[TOPICS] = (project / TOPICS).read_text()
    for before, line in LISTS:
        if texts[TOPICS].count(before) != 1:
            raise UserError(
                f"{TOPICS} has another form than expected", "Add the topic there by hand, as for another one"
            )
        added = _environment().from_string(line).render(new=new)
        texts[TOPICS] = texts[TOPICS].replace(before, added + before)
    texts[DOCS] = (project / DOCS).read_text()
    for name in sorted(new.descriptions.keys() - described(project).keys()):
        texts[DOCS] += f"\n{{% docs {name} %}}\n{new.descriptions[name]}\n{{% enddocs %}}\n"
    for file, text in texts.items():
        (project / file).parent.mkdir(parents=True, exist_ok=True)
        (project / file).write_text(text)
    return sorted(texts)


def _files(new: New) -> dict[str, str]:
    """Return the templates of the models, by file."""
    templates = {
        f"models/staging/{new.source}/{new.models['staging']}": "stg",
        f"models/intermediate/deduplicated/{new.models['deduplicated']}": "int_deduplicated",
        f"models/intermediate/masked/{new.models['masked']}": "int_masked",
        f"models/marts/{new.models['mart']}": "fct",
        f"models/exports/{new.models['export']}": "exp",
    }
    return {f"{path}.{kind}": f"{name}.{kind}.j2" for path, name in templates.items() for kind in ("sql", "yml")}


@cache
def _environment() -> Environment:
    # What dbt renders is in the text of these templates.
    environment = Environment(  # noqa: S701 - SQL and YAML
        *("<%", "%>", "<<", ">>", "<#", "#>"),
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=StrictUndefined,
    )
    environment.filters |= {"yaml": _yaml, "sql": _sql}
    environment.globals |= {"metadata": METADATA, "description": description, "unused": unused}
    return environment


def _yaml(value: object, indent: int = 10) -> str:
    """Return a value in YAML: text in lines of about 150 characters, anything else in one."""
    width = 150 - indent if isinstance(value, str) else math.inf
    text = yaml.safe_dump(value, default_flow_style=True, sort_keys=False, allow_unicode=True, width=width)
    return text.removesuffix("...\n").strip().replace("\n", "\n" + indent * " ")


def _sql(line: str, indent: int = 8) -> str:
    """Return a line of SQL with what sqlfluff must overlook: it knows other words, and no name can be broken."""
    rules = [*(["RF06"] if "`" in line else []), *(["LT05"] if indent + len(line) + 17 > LONGEST_SQL else [])]
    return f"{line}  -- noqa: {','.join(rules)}" if rules else line


def _rendered(template: str, new: New) -> str:
    text = _environment().get_template(template).render(new=new)
    is_long = template.endswith(".yml.j2") and any(len(line) > LONGEST_YAML for line in text.splitlines())
    indent = " " * (len(text) - len(text.lstrip(" ")))
    return f"{indent}# yamllint disable rule:line-length\n{text}" if is_long else text
