"""What the config.meta of models declares for mail and report, of a dataset and of the lake."""

from typing import Annotated, Any, TypeVar

from pydantic import ConfigDict, Field, StringConstraints, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from python_common.errors import UserError
from python_dbt.manifest import DbtManifest

NO_OTHER_KEYS = ConfigDict(extra="forbid")
Declared = TypeVar("Declared")


@dataclass(frozen=True, kw_only=True, config=NO_OTHER_KEYS)
class Headline:
    """A figure at the top of the report, what its readers call it, and its position among those of all datasets."""

    place: int
    figure: str
    label: str


@dataclass(frozen=True, kw_only=True, config=NO_OTHER_KEYS)
class Chart:
    """The totals `of` a column `by` the values of another, over some weeks, and what readers call them."""

    by: str
    of: str
    title: str
    heading: str
    label: str
    empty: str


@dataclass(frozen=True, kw_only=True, config=NO_OTHER_KEYS)
class Ranked:
    """A column of a ranking and what readers call it.

    With `of` it is another dataset's, of the first row whose `key`, after a `prefix`, is the ranking's key.
    """

    column: str
    heading: str
    of: str | None = None
    key: str | None = None
    prefix: str = ""


@dataclass(frozen=True, kw_only=True, config=NO_OTHER_KEYS)
class Ranking:
    """The rows of the file that have most in the column `by`, some of their columns, and what readers call them.

    A row without a value in the first column is called by that in `key`, by default the first column.
    """

    by: str
    columns: Annotated[tuple[Ranked, ...], Field(min_length=1)]
    title: str
    note: str
    empty: str
    key: str | None = None

    @property
    def row_key(self) -> str:
        """The column that names a row."""
        return self.key or self.columns[0].column


@dataclass(frozen=True, kw_only=True, config=NO_OTHER_KEYS)
class ReportSpec:
    """`measures` are the columns whose sum over a file means something; a sum of prices or numbers does not."""

    measures: tuple[str, ...] = ()
    headlines: tuple[Headline, ...] = ()
    chart: Chart | None = None
    ranking: Ranking | None = None


@dataclass(frozen=True, kw_only=True, config=NO_OTHER_KEYS)
class Excluded:
    """Rows that files exclude, as a model declares in config.meta.excluded: their label and position in the report.

    They are counted, or one of their columns is summed up.
    """

    place: int
    label: str
    sum: Annotated[str, StringConstraints(pattern=r"^[a-z_][a-z0-9_]*$")] | None = None


EXCLUDED = TypeAdapter(Excluded)


def excluded_queries(manifest: DbtManifest) -> dict[str, str]:
    """Return the queries that count what files exclude, by label, in the order of the report.

    Raises:
        UserError: a config.meta.excluded is malformed.
    """
    queries = []
    for node in manifest.nodes.values():
        if meta := node.meta.get("excluded"):
            declared = read_meta(EXCLUDED, meta, f"config.meta.excluded of {node.name}")
            count = f"sum({declared.sum})" if declared.sum else "count(*)"
            queries.append((declared.place, declared.label, f"select {count} from {node.table}"))
    return {label: sql for _, label, sql in sorted(queries)}


def read_meta(reader: TypeAdapter[Declared], meta: Any, location: str) -> Declared:
    """Return what a model declares at a place; a UserError that names what is malformed."""
    try:
        return reader.validate_python(meta)
    except ValidationError as error:
        wrong = ", ".join(".".join(map(str, issue["loc"])) for issue in error.errors())
        raise UserError(f"{location} is wrong at {wrong}", "See models/meta.schema.json for its keys") from None
