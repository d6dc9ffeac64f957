"""What a name means at a place in a query."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from lakehouse.pii.masks import Masks
from lakehouse.pii.traces import LANDED, NONE, Relation, Traces, Unfollowed, union


@dataclass(frozen=True)
class Scope:
    """The relations and columns that can be named; `outer` is the scope around a subquery."""

    tables: Mapping[str, Relation]
    masks: Masks
    sources: tuple[tuple[str, Relation], ...] = ()
    # Projections so far: Spark lets later ones refer to them.
    aliases: tuple[tuple[str, Traces], ...] = ()
    outer: "Scope | None" = field(default=None, repr=False)

    def column(self, parts: list[str]) -> Traces:
        """Return what reaches `column`, `source.column`, or a field of either; Unfollowed if it does not exist."""
        if len(parts) > 1:
            for name, source in self.sources:
                found = _of_source(source, parts[1], parts[2:]) if name == parts[0] else None
                if found is not None:
                    return found
        found = self.named(parts[0], parts[1:])
        if found is not None:
            return found
        if self.outer is None:
            raise Unfollowed(f"no relation it reads has a column {'.'.join(parts)}")
        return self.outer.column(parts)

    def named(self, name: str, fields: list[str]) -> Traces | None:
        """Return what reaches a column, or a field of it, of any relation here; None if there is no such column."""
        found = [_of_source(source, name, fields) for _, source in self.sources]
        found += [traces for alias, traces in self.aliases if alias == name]
        followed = [traces for traces in found if traces is not None]
        return union(followed) if followed else None

    def anywhere(self, name: str) -> Traces:
        """Return what reaches any column of a name, here or further out."""
        return (self.named(name, []) or NONE) | (self.outer.anywhere(name) if self.outer else NONE)


def _of_source(source: Relation, name: str, fields: list[str]) -> Traces | None:
    for deepest in range(len(fields), -1, -1):
        path = ".".join([name, *fields[:deepest]])
        found = [traces for column, traces in source.columns if column == path]
        if found:
            below = fields[deepest:]
            return frozenset(
                replace(trace, column=".".join([trace.column, *below])) if trace.pii == LANDED else trace
                for trace in union(found)
            )
    return None
