"""dbt's manifest.json, with the fields in use."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from pydantic import AliasChoices, AliasPath, Field, TypeAdapter, ValidationError

from python_common.errors import UserError

# The nodes that `ref` reads.
REFERENCED = ("model", "seed", "snapshot")


def _field(*path: str) -> Any:
    return Field(validation_alias=AliasPath(*path))


Meta = Annotated[dict[str, Any], _field("config", "meta")]


@dataclass(frozen=True)
class Constraint:
    """A constraint of a column's contract, such as `not_null`."""

    type: str


@dataclass(frozen=True)
class Column:
    """A column as its yml describes it."""

    data_type: str | None = None
    description: str = ""
    constraints: list[Constraint] = field(default_factory=list)
    meta: Meta = field(default_factory=dict)


@dataclass(frozen=True)
class Hook:
    """SQL that dbt runs before or after a node, as written."""

    sql: str


@dataclass(frozen=True)
class Node:
    """A model, seed, snapshot, test, unit test, hook of the project (`operation`) or source table.

    Sources have an identifier and their source's name, and no alias. `parents` are the unique ids of what it reads.
    """

    unique_id: str
    resource_type: str
    name: str
    schema: str
    alias: str = ""
    identifier: str = ""
    source_name: str = ""
    package_name: str = ""
    original_file_path: str = ""
    raw_code: str = ""
    compiled_code: str | None = None
    # A unit test has the text itself.
    checksum: Annotated[str, Field(validation_alias=AliasChoices(AliasPath("checksum", "checksum"), "checksum"))] = ""
    description: str = ""
    columns: dict[str, Column] = field(default_factory=dict)
    attached_node: str | None = None
    column_name: str | None = None
    test_name: Annotated[str, _field("test_metadata", "name")] = ""
    test_arguments: Annotated[dict[str, Any], _field("test_metadata", "kwargs")] = field(default_factory=dict)
    parents: Annotated[list[str], _field("depends_on", "nodes")] = field(default_factory=list)
    macros: Annotated[list[str], _field("depends_on", "macros")] = field(default_factory=list)
    config: dict[str, Any] = field(default_factory=dict)
    meta: Meta = field(default_factory=dict)
    materialized: Annotated[str, _field("config", "materialized")] = ""
    partition_by: Annotated[Any, _field("config", "partition_by")] = None
    pre_hooks: Annotated[list[Hook], _field("config", "pre-hook")] = field(default_factory=list)
    post_hooks: Annotated[list[Hook], _field("config", "post-hook")] = field(default_factory=list)
    sql_header: Annotated[str | None, _field("config", "sql_header")] = None
    incremental_predicates: Annotated[Any, _field("config", "incremental_predicates")] = None
    unique_key: Annotated[str | list[str] | None, _field("config", "unique_key")] = None
    updated_at: Annotated[str | None, _field("config", "updated_at")] = None
    check_cols: Annotated[str | list[str] | None, _field("config", "check_cols")] = None
    fail_calc: Annotated[str, _field("config", "fail_calc")] = "count(*)"
    store_failures: Annotated[bool | None, _field("config", "store_failures")] = None
    store_failures_as: Annotated[str | None, _field("config", "store_failures_as")] = None
    # A unit test has its inputs, what it expects of its model, and what it replaces in the context.
    given: list[dict[str, Any]] = field(default_factory=list)
    expect: dict[str, Any] = field(default_factory=dict)
    overrides: dict[str, Any] | None = None

    @property
    def table(self) -> str:
        """Schema and name of its table."""
        return f"{self.schema}.{self.identifier or self.alias}"

    @property
    def is_export(self) -> bool:
        """Whether it is published as files."""
        return "export" in self.meta

    @property
    def first_source(self) -> str:
        """The dbt source of the first source table that it reads; empty if it reads none."""
        # Unique ids are source.<project>.<source>.<table>.
        return next((parent.split(".")[2] for parent in self.parents if parent.startswith("source.")), "")

    @property
    def grain(self) -> str:
        """The first sentence of its description, which states what a row is."""
        return " ".join(self.description.split()).partition(". ")[0].rstrip(".")

    def column_meta(self, name: str) -> Mapping[str, Any]:
        """Return the config.meta of a column, empty if the yml does not describe it."""
        return self.columns[name].meta if name in self.columns else {}


@dataclass(frozen=True)
class Macro:
    """A macro and the unique ids of those that it calls; `has_stand_in` if SQL was compiled with another one."""

    name: str
    package_name: str
    macro_sql: str
    macros: Annotated[list[str], _field("depends_on", "macros")] = field(default_factory=list)
    original_file_path: str = ""
    has_stand_in: bool = False


@dataclass(frozen=True)
class Exposure:
    """What is made of models outside of the project."""

    name: str
    label: str | None = None
    parents: Annotated[list[str], _field("depends_on", "nodes")] = field(default_factory=list)


@dataclass(frozen=True)
class DbtManifest:
    """Nodes, unit tests, source tables, macros and exposures by unique id."""

    nodes: dict[str, Node] = field(default_factory=dict)
    sources: dict[str, Node] = field(default_factory=dict)
    macros: dict[str, Macro] = field(default_factory=dict)
    exposures: dict[str, Exposure] = field(default_factory=dict)
    unit_tests: dict[str, Node] = field(default_factory=dict)

    @property
    def models(self) -> list[Node]:
        """The models."""
        return [node for node in self.nodes.values() if node.resource_type == "model"]

    @property
    def landed(self) -> list[Node]:
        """The source tables that topics are landed in."""
        return [source for source in self.sources.values() if source.meta.get("kafka")]

    def named(self, name: str) -> Node:
        """Return the model, seed or snapshot of a name; a ValueError if it is missing."""
        [node] = [node for node in self.nodes.values() if node.name == name and node.resource_type in REFERENCED]
        return node

    def ancestors(self, *unique_ids: str) -> list[str]:
        """Return the unique ids of all that some nodes are made from, sorted."""
        ancestors: set[str] = set()
        waiting = [*unique_ids]
        while waiting:
            node = self.nodes.get(waiting.pop())
            new = {*node.parents} - ancestors if node else set()
            ancestors |= new
            waiting += new
        return sorted(ancestors)


_READER = TypeAdapter(DbtManifest)


def parse(text: str | bytes) -> DbtManifest:
    """Return a manifest; pydantic's ValidationError, a ValueError, if it has another form."""
    return _READER.validate_json(text)


def load(path: Path) -> DbtManifest:
    """Return the manifest in a file.

    Raises:
        UserError: the file is damaged, or of another version of dbt.
    """
    try:
        return parse(path.read_bytes())
    except ValidationError as error:
        [first, *_] = error.errors(include_url=False, include_input=False)
        field = ".".join(map(str, first["loc"]))
        raise UserError(
            f"dbt's manifest at {path} cannot be read: {first['msg']}{f' at {field}' if field else ''}",
            "Delete it and run `dbt build`",
        ) from None
