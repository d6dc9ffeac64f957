"""The columns of a new topic: names and types in staging, PII classes, and what leaves the mask of each."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

import yaml
from sqlglot.dialects import Spark

from python_common.config.environment import PROJECT_ROOT
from python_common.errors import UserError
from python_dbt.pii import masks
from python_dev.scaffold.schema import ScaffoldedTopic, SourceField
from python_ingest.avro.walk import avro_type
from python_ingest.declare.table_layout import METADATA_COLUMNS

# The class of a column without a class given by --pii: no mask lets it out.
UNCLASSIFIED = "unclassified"
# How a description begins that the schema does not have: it holds for one topic alone.
UNDOCUMENTED = "Field"
# What staging makes of a landed type without personal data; all others stay. A file needs exact numbers.
CASTS = {"int": "bigint", "float": "decimal(28,6)", "double": "decimal(28,6)", "timestamp_ntz": "timestamp"}
# What no model has, by the beginning of its type.
UNUSED = {"array": "lists need a model that makes rows of them", "map": "maps", "binary": "bytes"}
# The type of a column behind a mask that is no text.
MASKED_TYPES = {"year": "int", "month": "date"}
# Columns that the models have, whatever the topic.
RESERVED = frozenset({*METADATA_COLUMNS, "is_event_time_valid", "key_version", "rank_in_key"})
LONGEST_NAME = 50


@dataclass(frozen=True)
class Output:
    """A column behind the masks: of its source's class and by `mask`, None if it is as it was.

    `leaf` is the field of the payload, if it is of one.
    """

    name: str
    type: str
    description: str
    pii: str = masks.AS_IS
    mask: str | None = None
    leaf: SourceField | None = None


@dataclass(frozen=True)
class StagingColumn:
    """A leaf of the payload, as it lands and as staging has it; `taken` are names that no other column may have."""

    leaf: SourceField
    name: str
    pii: str
    description: str
    taken: frozenset[str]

    @property
    def as_is(self) -> str:
        """Its type in staging if it is no personal data."""
        return CASTS.get(self.leaf.type, self.leaf.type)

    @property
    def type(self) -> str:
        """Its type in staging. Personal data is carried as it is: the error of a cast would quote it."""
        return self.as_is if self.pii == masks.AS_IS or self.leaf.type == "int" else self.leaf.type

    def selected(self, is_key: bool) -> str:
        """Return what staging selects: text trimmed, blanks NULL, but for a key. Masks trim what they need to."""
        value = self.sql_path
        if self.type != self.leaf.type:
            value = f"try_cast({value} as {self.type.replace(',', ', ')})"
        elif self.type == "string" and self.pii == masks.AS_IS and not is_key:
            value = f"{{{{ clean_text('{value}') }}}}"
        # Spark ignores case in names. A path may end with its name, below a parent whose name cannot be in one.
        return value if value.rpartition(".")[2] == self.name else f"{value} as {self.name}"

    @property
    def sql_path(self) -> str:
        """Its path in bronze, in SQL."""
        return ".".join(name.lower() if _is_plain(name.lower()) else f"`{name}`" for name in self.leaf.path.split("."))

    @property
    def output(self) -> Output | None:
        """What the masked model has of it; None if its class is dropped."""
        allowed = masks.load().classes[self.pii]
        if not allowed:
            return None
        if self.pii == masks.AS_IS:
            return Output(self.name, self.type, self.description, leaf=self.leaf)
        mask = allowed[0]
        name = unique(f"{self.name}_{masks.load().suffixes[mask]}", self.taken)
        words = f"{mask.replace('_', ' ').capitalize()} of {self.name}."
        return Output(name, MASKED_TYPES.get(mask, "string"), words, self.pii, mask, self.leaf)


def unused(topic: ScaffoldedTopic) -> dict[str, str]:
    """Return by path what no model has: no column of a file holds it."""
    types = {leaf.path: re.split(r"\W", leaf.type)[0] for leaf in topic.leaves}
    return {path: UNUSED[its_type] for path, its_type in types.items() if its_type in UNUSED}


def columns(topic: ScaffoldedTopic, classes: Mapping[str, str], described: Mapping[str, str]) -> list[StagingColumn]:
    """Return a topic's columns.

    `classes` are PII classes by column. `described` are the columns of the project with their descriptions: a field
    that has another one gets another name.

    Raises:
        UserError: a class or column is unknown, or no mask of the class takes the column's type.
    """
    leaves = [leaf for leaf in topic.leaves if leaf.path not in unused(topic)]
    fields = {field.path.lower() for field in topic.fields}
    names: dict[str, SourceField] = {}
    for leaf in leaves:
        own = description(topic, leaf)
        others = {
            other
            for other, text in described.items()
            if text != own and (topic.described(leaf.path) or text.startswith(UNDOCUMENTED))
        }
        others |= fields - {leaf.path.lower()}
        names[unique(_snake_case(leaf.path), RESERVED | sql_words() | names.keys() | others)] = leaf
    for name, pii in classes.items():
        if name not in names:
            raise UserError(f"Topic {topic.name} has no column {name}", f"Choose from {', '.join(names)}")
        if pii not in masks.load().classes:
            raise UserError(f"There is no PII class {pii}", f"Choose from {', '.join(masks.load().classes)}")
    for name, leaf in names.items():
        if (pii := classes.get(name, UNCLASSIFIED)) not in offered(leaf.type):
            raise UserError(
                f"No mask of the class {pii} takes {name}, a {leaf.type}",
                f"Choose from {', '.join(offered(leaf.type))}",
            )
    return [
        StagingColumn(leaf, name, classes.get(name, UNCLASSIFIED), description(topic, leaf), RESERVED | names.keys())
        for name, leaf in names.items()
    ]


def offered(landed: str) -> list[str]:
    """Return the PII classes whose masks take a type, and those that are dropped."""
    return [pii for pii in masks.load().classes if masks.takes(pii, landed)]


def description(topic: ScaffoldedTopic, leaf: SourceField) -> str:
    """Return the documentation of a field in its schema, or else what is known of it."""
    if doc := topic.described(leaf.path):
        return doc
    words = [avro_type(leaf.avro)]
    if isinstance(leaf.avro, dict):
        details = (leaf.avro.get("logicalType"), leaf.avro.get("precision"), leaf.avro.get("scale"))
        words += [str(detail) for detail in details if detail is not None]
    symbols = f", one of {', '.join(leaf.symbols)}" if leaf.symbols else ""
    is_there = "optional" if leaf.is_optional else "required"
    return f"{UNDOCUMENTED} {leaf.path} of {topic.name}: Avro {' '.join(words)}, {is_there}{symbols}."


def unique(name: str, taken: frozenset[str] | set[str]) -> str:
    """Return a name that is not taken, and text in YAML, with `_value` behind it as often as it takes."""
    while name in taken or not isinstance(yaml.safe_load(name), str):
        name = f"{name}_value"
    return name


@cache
def sql_words() -> frozenset[str]:
    """Return the words of Spark SQL that the linter or the proof takes for no name, reserved or not."""
    try:
        from sqlfluff.core import FluffConfig  # noqa: PLC0415 - a package of developers
    except ImportError:
        raise UserError("`lakehouse scaffold` needs sqlfluff", "Run it in a checkout, after `make setup`") from None
    linter = FluffConfig.from_path(str(PROJECT_ROOT))
    words = map(linter.get("dialect_obj").sets, ("reserved_keywords", "unreserved_keywords"))
    allowed = linter.get("ignore_words", ["rules", "references.keywords"]).split(",")
    every_word = {word.lower() for word in set().union(Spark.Tokenizer.KEYWORDS, *words)}
    return frozenset(every_word.difference(allowed))


def _snake_case(path: str) -> str:
    """Return a name of a to z, digits and underscores."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", path).lower()
    name = re.sub(r"[^a-z0-9]+", "_", words).strip("_")
    return (name if name[:1].isalpha() else f"field_{name}").strip("_")[:LONGEST_NAME].strip("_")


def _is_plain(name: str) -> bool:
    return bool(re.fullmatch(r"[a-z][a-z0-9_]*", name)) and name not in sql_words()
