"""Where the rows of a person are: what the dbt source tables declare under config.meta.subjects, for erasure."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, ConfigDict, Field
from pydantic.dataclasses import dataclass

from python_common.errors import UserError

Name = Annotated[str, Field(min_length=1)]


def _table_and_column(value: Any) -> Any:
    return value.partition(".")[::2] if isinstance(value, str) else value


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class Subject:
    """A kind of person with its source, for instance `shop.customer`, whose rows a table has.

    One of `columns` holds the person's id, or, with `through`, a value that the person's rows of another bronze
    table have in one of its columns: the address to which a customer's rows point. Nested fields are named by path.
    """

    kind: str
    columns: Annotated[tuple[Name, ...], Field(min_length=1)]
    through: tuple[Annotated[tuple[Name, Name], BeforeValidator(_table_and_column)], ...] = ()


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
