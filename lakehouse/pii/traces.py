"""What lineage tells of a relation: which classified columns reach each of its columns, raw or masked."""

from collections.abc import Iterable
from dataclasses import dataclass, replace


class Unfollowed(Exception):
    """Lineage cannot follow this SQL; whatever it proves is unproven then."""


@dataclass(frozen=True)
class Trace:
    """A classified column that reaches a place: raw if `mask` is None. `column` is written relation.column.

    `computed` says that it went through more than being carried along: a function, a cast, a comparison, a decision on
    rows. No mask is for that: what it would let out of the value is not what the mask says. `counted` says that only
    the number of distinct values is used. `source` is the dbt source that the column is of.
    """

    column: str
    pii: str
    mask: str | None = None
    computed: bool = False
    counted: bool = False
    source: str = ""


Traces = frozenset[Trace]
NONE: Traces = frozenset()
# The class of bronze columns: what lands has none until staging declares it.
LANDED = "landed"
MASKING_KEY = Trace("the masking key", "key")


@dataclass(frozen=True)
class Relation:
    """The columns of a table or query with what reaches them by value; `steering` reaches all by deciding on rows.

    A field that differs from its column stands beside it, as `column.field`. `ordered` is False where the columns may
    stand in another order, as those of a stored table do: a contract or an earlier build decides on it.
    """

    columns: tuple[tuple[str, Traces], ...]
    steering: Traces = NONE
    ordered: bool = True

    def flat(self) -> "Relation":
        """Return the relation as its readers see it."""
        return Relation(tuple((name, traces | self.steering) for name, traces in self.columns), ordered=self.ordered)

    def without_counts(self) -> "Relation":
        """Return the relation as if numbers of distinct values depended on nothing."""
        columns = tuple((name, _uncounted(traces)) for name, traces in self.columns)
        return Relation(columns, _uncounted(self.steering), self.ordered)

    def everything(self) -> Traces:
        """Return what reaches any column."""
        return union(traces for _, traces in self.columns) | self.steering


def union(sets: Iterable[Traces]) -> Traces:
    """Return what is in any of the sets."""
    return NONE.union(*sets)


def computed(traces: Traces) -> Traces:
    """Return the traces after a computation."""
    return frozenset(replace(trace, computed=True) for trace in traces)


def carried(arms: Iterable[Traces]) -> Traces:
    """Return the traces of a value that is that of one arm or another.

    It is carried if every arm carries a classified column. Beside a value of one's own choice it is computed: equal
    masks would show which rows hold that value.
    """
    arms = list(arms)
    together = union(arms)
    every = all(any(not trace.computed for trace in arm) for arm in arms)
    return together if every else computed(together)


def _uncounted(traces: Traces) -> Traces:
    return frozenset(trace for trace in traces if not trace.counted)
