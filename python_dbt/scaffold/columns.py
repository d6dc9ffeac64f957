"""The columns of a new topic: names and types in staging, guessed PII classes, and what leaves the mask of each."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pyiceberg.types import DecimalType, IcebergType

from python_common.config.settings import Settings
from python_common.errors import UserError
from python_dbt.pii import masks
from python_ingest.avro.expanded_schema import expand_schema
from python_ingest.avro.walk import IncompatibleSchema
from python_ingest.bronze.columns import landed_columns
from python_ingest.declare.spark_types import children, in_spark
from python_ingest.kafka.registry import Registered, Registry

# Words of Spark SQL, as sqlfluff and sqlglot know them. RESERVED ones do not parse without quotes; KEYWORDS do, but as
# the alias of a column they mislead a reader.
RESERVED, KEYWORDS = (
    frozenset((Path(__file__).parent / name).read_text().split()) for name in ("reserved.txt", "keywords.txt")
)
# By the name of a column in staging; of the others text is FREE_TEXT, which no mask lets out, and the rest is no PII.
GUESSES = {
    "email": r"e_?mail",
    "customer": r"(customer|client|member)_?(id|number|no)$",
    "user": r"user_?(id|number|no)$",
    "card_expiration": r"expir",
    "card_number": r"(card|cc|pan)_?(number|num|no)$",
    "account": r"iban|account",
    "postal_code": r"(zip|post|postal)_?(code)?$",
    "street": r"street|address(_?line.*)?$",
    "birth": r"birth|^dob$",
    "gender": r"gender|^sex$",
    "person_name": r"^name$|(first|last|full|middle|customer|user|client|member|contact|recipient)_?name",
}
FREE_TEXT = "free_text"
# What staging makes of a landed type; all others stay. A file needs exact numbers.
CASTS = {"int": "bigint", "float": "decimal(28,6)", "double": "decimal(28,6)", "timestamp_ntz": "timestamp"}
# The end of a column's name, its type and the words for it behind a mask; of another mask, its name and text.
MASKED = {
    "pseudonym": (
        "pseudonym",
        "string",
        "Pseudonym of {}: equal values have the same one, and it cannot be turned back.",
    ),
    "last_four": ("last_four", "string", "Last four digits of {}."),
    "initials": ("masked", "string", "First letters of {}, each with three stars."),
    "postal_area": ("area", "string", "First two characters of {}."),
    "year": ("year", "int", "Year of {}."),
    "month": ("month", "date", "First day of the month of {}."),
}
EXACT = re.compile(r"string|bigint|boolean|date|timestamp|decimal\(\d+,\d+\)")


@dataclass(frozen=True)
class Output:
    """A column behind its mask: of its source's class and by `mask`, None if it is as it was."""

    name: str
    type: str
    description: str
    pii: str
    mask: str | None = None


@dataclass(frozen=True)
class Column:
    """A field of the payload: as it lands, and as staging has it. `is_guessed` if its class is no input."""

    field: str
    landed: str
    name: str
    pii: str
    is_guessed: bool
    description: str

    @property
    def type(self) -> str:
        """Its type in staging."""
        return CASTS.get(self.landed, self.landed)

    @property
    def cleaned(self) -> str:
        """What staging selects of what is no key: text trimmed, blanks NULL. Masks trim what they need to."""
        is_text = self.type == "string" and self.pii == masks.AS_IS
        return f"{{{{ clean_text('{self.sql_field}') }}}} as {self.name}" if is_text else self.expression

    @property
    def expression(self) -> str:
        """What staging selects of a key. Spark ignores case in names."""
        value = self.sql_field
        if self.type != self.landed:
            value = f"try_cast({value} as {self.type.replace(',', ', ')})"
        return value if value == self.name else f"{value} as {self.name}"

    @property
    def sql_field(self) -> str:
        """Its name in bronze, in SQL."""
        return f"`{self.field.lower()}`" if self.field.lower() in RESERVED else self.field.lower()

    @property
    def remark(self) -> str:
        """What sqlfluff must overlook in the line of staging: it does not know all words that need quotes."""
        return "  -- noqa: RF06" if self.sql_field.startswith("`") else ""

    @property
    def output(self) -> Output | None:
        """What the masked model has of it; None if its class is dropped, or no file can hold its type."""
        allowed = masks.load().classes[self.pii]
        if not allowed or (self.pii == masks.AS_IS and not EXACT.fullmatch(self.type)):
            return None
        if self.pii == masks.AS_IS:
            return Output(self.name, self.type, self.description, self.pii)
        mask = allowed[0]
        end, its_type, words = MASKED.get(mask, (mask, "string", f"`{mask}` of {{}}."))
        return Output(f"{self.name}_{end}", its_type, words.format(self.name), self.pii, mask)


def read(settings: Settings, topic: str, classes: Mapping[str, str]) -> tuple[str, str, list[Column]]:
    """Return how a topic's keys are decoded, the type of `kafka_key`, and its columns by the newest schema.

    `classes` are PII classes by column; a column that it does not name gets a guess.

    Raises:
        UserError: the registry has no Avro schema of the topic, or a class or column is unknown.
    """
    registry = Registry(settings, wait=0)
    value, key = (registry.latest(f"{topic}-{side}") for side in ("value", "key"))
    if value is None:
        raise UserError(
            f"The schema registry has no subject {topic}-value", "Register the topic's schema, or check its name"
        )
    key_type = _landed("key", topic, key[1])["kafka_key"] if key and key[1].schema_type == "AVRO" else None
    return (
        "avro" if key_type else "string",
        in_spark(key_type) if key_type else "string",
        columns(_landed("value", topic, value[1]), _documented(value[1].text), topic, classes),
    )


def columns(
    landed: Mapping[str, IcebergType], documented: Mapping[str, str], topic: str, classes: Mapping[str, str]
) -> list[Column]:
    """Return columns from landed types and the schema's documentation of fields; raises as `read`."""
    payload_columns = []
    for field, its_type in landed.items():
        name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", field).lower().strip("_")
        name = f"{name}_value" if name in RESERVED | KEYWORDS or not name[:1].isalpha() else name
        landed_type = in_spark(its_type)
        if isinstance(its_type, DecimalType):
            landed_type = landed_type.replace(" ", "")
        description = documented.get(field) or f"Field {field} of topic {topic}, as its producer writes it."
        pii = classes.get(name) or _guess(name, landed_type)
        payload_columns.append(Column(field, landed_type, name, pii, name not in classes, description))
    names = [column.name for column in payload_columns]
    for name, pii in classes.items():
        if name not in names:
            raise UserError(f"Topic {topic} has no column {name}", f"Choose from {', '.join(names)}")
        if pii not in masks.load().classes:
            raise UserError(f"There is no PII class {pii}", f"Choose from {', '.join(masks.load().classes)}")
    if twice := {name for name in names if names.count(name) > 1}:
        raise UserError(
            f"Two fields of {topic} are {', '.join(sorted(twice))} in staging", "Write these models by hand"
        )
    return payload_columns


def _guess(name: str, landed: str) -> str:
    if not EXACT.fullmatch(CASTS.get(landed, landed)):
        return FREE_TEXT
    matches = (pii for pii, pattern in GUESSES.items() if re.search(pattern, name))
    return next(matches, FREE_TEXT if landed == "string" else masks.AS_IS)


def _landed(side: str, topic: str, registered: Registered) -> Mapping[str, IcebergType]:
    remedy = "Only Avro is landed, by the types of docs/type-mapping.md"
    if registered.schema_type != "AVRO":
        raise UserError(f"The schema {topic}-{side} is {registered.schema_type}", remedy)
    try:
        return children(landed_columns(side, expand_schema(registered.text, registered.references)))
    except IncompatibleSchema as error:
        raise UserError(f"The schema {topic}-{side} cannot be landed: {error}", remedy) from None


def _documented(text: str) -> dict[str, str]:
    """Return the documentation of an Avro record's fields, by name, but for what dbt would render."""
    schema = json.loads(text)
    fields = schema.get("fields", []) if isinstance(schema, dict) else []
    texts = {field["name"]: " ".join(str(field.get("doc", "")).split()) for field in fields}
    return {name: words for name, words in texts.items() if words and "{" not in words}
