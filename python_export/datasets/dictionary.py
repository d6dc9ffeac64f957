"""The dictionary of a dataset: what its model's yml declares of each column (dictionary.csv)."""

import csv
import io
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields

from python_dbt.manifest import Node
from python_dbt.pii import masks

FILE = "dictionary.csv"
# A spreadsheet runs a cell that begins with one of these, the full-width forms included, as a formula (CWE-1236).
FORMULA_STARTS = "=+-@\t\r\n\uff1d\uff0b\uff0d\uff20"
FORMULA = re.compile(f"'*[{re.escape(FORMULA_STARTS)}]")


@dataclass(frozen=True)
class Field:
    """A column.

    `pii` is the class of the personal data it comes from and `mask` what became of it, and in which rows if not in all;
    both may be empty.
    `is_quasi_identifier`: with others it singles out a person, though none of them names one.
    `nullable` unless the contract has a constraint not_null; `allowed_values` are those of `meta.allowed_values`, none
    if any will do.
    """

    name: str
    type: str
    unit: str = ""
    nullable: bool = True
    description: str = ""
    pii: str = ""
    mask: str = ""
    allowed_values: tuple[str, ...] = ()
    is_quasi_identifier: bool = False


def of_model(node: Node) -> tuple[Field, ...]:
    """Return the fields of an export model."""
    return tuple(
        Field(
            name=name,
            type=column.data_type or "",
            unit=column.meta.get("unit", ""),
            nullable=all(constraint.type != "not_null" for constraint in column.constraints),
            description=" ".join(column.description.split()),
            pii=column.meta.get("pii", ""),
            mask=" ".join(column.meta[part] for part in ("mask", "masked_rows") if part in column.meta),
            allowed_values=tuple(map(str, column.meta.get("allowed_values", ()))),
            is_quasi_identifier=bool(column.meta.get("quasi"))
            or column.meta.get("mask", masks.WHOLE) not in masks.without_parts(),
        )
        for name, column in node.columns.items()
    )


def text(described: Iterable[Field], k_anonymity: int | None = None) -> str:
    """Return the fields as CSV; a quasi-identifier's row has the fewest persons of one combination of all of them."""
    stream = io.StringIO()
    names = [column.name for column in fields(Field) if column.name != "is_quasi_identifier"]
    writer = csv.DictWriter(stream, [*names, "k_anonymity"], lineterminator="\n")
    writer.writeheader()
    for field in described:
        row = {**asdict(field), "nullable": str(field.nullable).lower()}
        row["allowed_values"] = " | ".join(field.allowed_values)
        row["k_anonymity"] = str(k_anonymity or "") if row.pop("is_quasi_identifier") else ""
        writer.writerow({name: f"'{text}" if FORMULA.match(text) else text for name, text in row.items()})
    return stream.getvalue()
