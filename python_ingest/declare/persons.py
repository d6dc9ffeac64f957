"""Where the rows of a person are: what the dbt source tables declare under config.meta.subjects, for erasure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from python_common.errors import UserError

FIELDS = ("columns", "through")


@dataclass(frozen=True)
class Subject:
    """A kind of person with its source, for instance `shop.customer`, whose rows a table has.

    One of `columns` holds the person's id, or, with `through`, a value that the person's rows of another bronze
    table have in one of its columns: the address to which a customer's rows point. Nested fields are named by path.
    """

    kind: str
    columns: tuple[str, ...]
    through: tuple[tuple[str, str], ...] = ()


def read(value: Any, source: str, location: str) -> tuple[Subject, ...]:
    """Return the subjects that a table of a source declares: columns for each kind, or `columns` and `through`.

    Raises:
        UserError: the declaration is malformed.
    """
    if value is None:
        return ()
    if not isinstance(value, dict):
        raise UserError(f"{location} is not a mapping", "Write it as customer: [customerid]")
    return tuple(_subject(f"{source}.{kind}", declared, f"{location}.{kind}") for kind, declared in value.items())


def _subject(kind: str, value: Any, location: str) -> Subject:
    if not isinstance(value, dict):
        return Subject(kind, _names(value, location))
    for name in value:
        if name not in FIELDS:
            raise UserError(f"{location}.{name} is not a known field", f"Use {', '.join(FIELDS)}")
    through = [name.partition(".") for name in _names(value.get("through"), f"{location}.through")]
    if not all(table and column for table, _, column in through):
        raise UserError(f"{location}.through does not name columns of tables", "Write it as [customers.address_id]")
    return Subject(
        kind,
        _names(value.get("columns"), f"{location}.columns"),
        tuple((table, column) for table, _, column in through),
    )


def _names(value: Any, location: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not value or not all(isinstance(name, str) and name for name in value):
        raise UserError(f"{location} is not a list of columns", "Write it as [customerid, kafka_key.customerid]")
    return tuple(value)


def check_through(tables: Mapping[str, tuple[Subject, ...]], location: str) -> None:
    """Raise a UserError unless every table that a subject goes through declares itself where the person's id is.

    `tables` are those of one source.
    """
    for name, subjects in tables.items():
        for subject in subjects:
            for table, _ in subject.through:
                if not any(
                    declared.kind == subject.kind and not declared.through for declared in tables.get(table, ())
                ):
                    kind = subject.kind.rpartition(".")[2]
                    raise UserError(
                        f"{location}: table {name}: subjects.{kind} goes through {table}, which does not declare"
                        f" where the id of a {kind} is",
                        f"Declare config.meta.subjects.{kind} of {table} as a list of columns",
                    )
