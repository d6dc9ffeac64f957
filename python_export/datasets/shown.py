"""What mail and report show of a dataset, as its model declares it in config.meta.export.shown."""

from collections.abc import Mapping
from typing import Any

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from lakehouse.errors import UserError

KNOWN = ConfigDict(extra="forbid")


@dataclass(frozen=True, kw_only=True, config=KNOWN)
class Headline:
    """A figure at the top of the report, what its readers call it, and its place among those of all datasets."""

    place: int
    figure: str
    label: str


@dataclass(frozen=True, kw_only=True, config=KNOWN)
class Chart:
    """The totals `of` a column `by` the values of one in `totals_by`, over some weeks, and what readers call them."""

    by: str
    of: str
    title: str
    heading: str
    label: str
    empty: str


@dataclass(frozen=True, kw_only=True, config=KNOWN)
class Shown:
    """`measures` are the columns whose sum over a file means something; a sum of prices or numbers does not."""

    measures: tuple[str, ...] = ()
    headlines: tuple[Headline, ...] = ()
    chart: Chart | None = None


SHOWN = TypeAdapter(Shown)


def of_export(model: str, export: Mapping[str, Any]) -> Shown:
    """Return what the config.meta.export of a model says.

    Raises:
        UserError: it says something else.
    """
    try:
        return SHOWN.validate_python(export.get("shown", {}))
    except ValidationError as error:
        wrong = ", ".join(".".join(map(str, problem["loc"])) for problem in error.errors())
        raise UserError(
            f"config.meta.export.shown of {model} is wrong at {wrong}", "docs/export.md says what stands there"
        ) from None
