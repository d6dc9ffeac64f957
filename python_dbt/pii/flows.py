"""Column lineage: which classified columns flow into each column of a relation, and what a name means in a query."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from python_dbt.pii.parse import UnsupportedSql

STAGING = "staging"
# The schemas in which raw values may be.
RESTRICTED = {STAGING, "deduplicated"}


@dataclass(frozen=True)
class Flow:
    """A classified column, written relation.column, that flows into another: raw if `mask` is None.

    `computed`: it is not carried as it is, but through a function, a cast, a comparison, or a decision on rows. Such a
    value must not be masked: a mask states what it reveals of the column's value. `counted`: only the number of
    distinct values is used. `source` is the dbt source of the column.
    """

    column: str
    pii: str
    mask: str | None = None
    computed: bool = False
    counted: bool = False
    source: str = ""


Flows = frozenset[Flow]
NONE: Flows = frozenset()
# The class of bronze columns: what lands has none until staging declares it.
LANDED = "landed"
MASKING_KEY = Flow("the masking key", "key")


@dataclass(frozen=True)
class Relation:
    """The columns of a table or query with what flows into each by value; `indirect` flows into all, by selecting rows.

    A field that differs from its column has a separate entry, `column.field`. `ordered` is False if the columns may
    be in another order, as those of a stored table: a contract or an earlier build decides on it.
    """

    columns: tuple[tuple[str, Flows], ...]
    indirect: Flows = NONE
    ordered: bool = True

    @cached_property
    def classified(self) -> frozenset[str]:
        """The names of the columns and fields that a classified column flows into."""
        return frozenset(name.rpartition(".")[2] for name, flows in self.columns if flows)

    def flat(self) -> "Relation":
        """Return the relation as its readers see it, stored."""
        return Relation(tuple((name, flows | self.indirect) for name, flows in self.columns), ordered=False)

    def without_counts(self) -> "Relation":
        """Return the relation without flows that only a number of distinct values depends on."""
        columns = tuple((name, _without_counted(flows)) for name, flows in self.columns)
        return Relation(columns, _without_counted(self.indirect), self.ordered)

    def everything(self) -> Flows:
        """Return what flows into any column."""
        return union(flows for _, flows in self.columns) | self.indirect


def union(sets: Iterable[Flows]) -> Flows:
    """Return what is in any of the sets."""
    return NONE.union(*sets)


def computed(flows: Flows) -> Flows:
    """Mark flows as computed."""
    return frozenset(replace(flow, computed=True) for flow in flows)


def carried(arms: Iterable[Flows]) -> Flows:
    """Return the flows of a value that comes from one of several arms.

    It is carried if every arm carries a classified column. If an arm is a chosen value, it is computed: equal masks
    would show which rows hold that value.
    """
    arms = list(arms)
    together = union(arms)
    every = all(any(not flow.computed for flow in arm) for arm in arms)
    return together if every else computed(together)


def _without_counted(flows: Flows) -> Flows:
    return frozenset(flow for flow in flows if not flow.counted)


@dataclass(frozen=True)
class Scope:
    """The relations and columns that a name may mean in a query; `outer` is the scope around a subquery."""

    tables: Mapping[str, Relation]
    sources: tuple[tuple[str, Relation], ...] = ()
    # Projections so far: Spark lets later ones refer to them.
    aliases: tuple[tuple[str, Flows], ...] = ()
    outer: "Scope | None" = field(default=None, repr=False)

    def column(self, path: list[str]) -> Flows:
        """Return what flows into `column`, `source.column`, or a field of either; UnsupportedSql if it is unknown."""
        if len(path) > 1:
            for name, source in self.sources:
                flows = _of_source(source, path[1], path[2:]) if name == path[0] else None
                if flows is not None:
                    return flows
        flows = self.named(path[0], path[1:])
        if flows is not None:
            return flows
        if self.outer is None:
            raise UnsupportedSql(f"no relation it reads has a column {'.'.join(path)}")
        return self.outer.column(path)

    def named(self, name: str, fields: list[str]) -> Flows | None:
        """Return what flows into a column, or a field of it, of any relation here; None if there is no such column."""
        candidates = [_of_source(source, name, fields) for _, source in self.sources]
        candidates += [flows for alias, flows in self.aliases if alias == name]
        followed = [flows for flows in candidates if flows is not None]
        return union(followed) if followed else None

    def anywhere(self, name: str) -> Flows:
        """Return what flows into any column of a name, here or further out."""
        return (self.named(name, []) or NONE) | (self.outer.anywhere(name) if self.outer else NONE)


def _of_source(source: Relation, name: str, fields: list[str]) -> Flows | None:
    for deepest in range(len(fields), -1, -1):
        path = ".".join([name, *fields[:deepest]])
        matches = [flows for column, flows in source.columns if column == path]
        if matches:
            below = fields[deepest:]
            return frozenset(
                replace(flow, column=".".join([flow.column, *below])) if flow.pii == LANDED else flow
                for flow in union(matches)
            )
    return None
