"""What changed from one version of a week to another: rows added, removed and changed, by the dataset's key."""

from dataclasses import dataclass
from pathlib import Path

from python_common.errors import UserError
from python_export.csv.csv_file import name, reading, rows_of, text
from python_export.publishing.manifest import Manifest


class ComparisonError(UserError):
    """Two versions cannot be compared, for instance because one is damaged."""


@dataclass(frozen=True)
class Difference:
    """The number of rows of each kind, and some of them as kind, key and the names of the columns that changed.

    `columns` are the changed rows by the column in which they differ.
    """

    added: int
    removed: int
    changed: int
    columns: dict[str, int]
    rows: tuple[tuple[str, dict[str, str], tuple[str, ...]], ...]

    def counts(self) -> dict[str, int]:
        """Return the numbers alone."""
        return {"added": self.added, "removed": self.removed, "changed": self.changed}


def difference(
    old: Manifest, old_file: Path, new: Manifest, new_file: Path, scratch: Path, limit: int = 0
) -> Difference:
    """Compare two versions; a column that only one of them has counts for no row. At most `limit` rows are listed.

    If the old version lacks a column of the new one's key, no row is the same: all are removed and added.

    Raises:
        ComparisonError: a file is damaged.
    """
    key = [name(column) for column in new.key]
    both = [column for column in new.column_names if column in old.column_names]
    changed = ", ".join(
        f"case when old.{name(column)} is distinct from new.{name(column)} then {text(column)} end" for column in both
    )
    # NULL is a value of a key, but not in a column that the old version lacks.
    same = [
        f"old.{name(column)} {'is not distinct from' if column in both else '='} new.{name(column)}"
        for column in new.key
    ]
    lacking = "".join(
        f", cast(null as varchar) as {name(column)}" for column in new.key if column not in old.column_names
    )
    with reading(
        scratch,
        f"{old.path} and {new.path} could not be compared",
        "`lakehouse export verify` reports a damaged file; restore it from a backup",
        ComparisonError,
    ) as database:
        database.execute(
            f"""
            create table compared as
            select
                case when old."is there" is null then 'added' when new."is there" is null then 'removed'
                    else 'changed' end as kind,
                {", ".join(f"coalesce(new.{column}, old.{column}) as {column}" for column in key)},
                list_filter([{changed}], lambda changed: changed is not null) as columns
            from (select *, true as "is there"{lacking} from {rows_of(old_file, old.column_names)}) as old
            full outer join (select *, true as "is there" from {rows_of(new_file, new.column_names)}) as new
                on {" and ".join(same)}
            where old."is there" is null or new."is there" is null or len(columns) > 0
            """
        )
        counts = dict(database.execute("select kind, count(*) from compared group by kind").fetchall())
        listed = database.execute(
            f"select kind, {', '.join(key)}, columns from compared order by all limit {limit}"
        ).fetchall()
        names = "select unnest(columns) as name from compared where kind = 'changed'"
        differing = dict(database.execute(f"select name, count(*) from ({names}) group by name").fetchall())
    rows = tuple(
        (kind, dict(zip(new.key, values, strict=True)), tuple(columns) if kind == "changed" else ())
        for kind, *values, columns in listed
    )
    columns = {column: differing[column] for column in both if column in differing}
    return Difference(counts.get("added", 0), counts.get("removed", 0), counts.get("changed", 0), columns, rows)
