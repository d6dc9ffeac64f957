"""Erases a person's rows in bronze: finds them by the columns that the sources declare, and empties them in place.

An erased row keeps its position, timestamps and landing time; all else is NULL, and decode_error has the time of the
erasure (python_ingest.bronze.erased). So positions, backfill, verify and reconciliation are unaffected, and the row is
never landed again. It is committed as a replay is (rewrite.replace_rows), under a new batch number, so every batch that
was planned before is refused.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from python_common.catalog import property_keys
from python_common.catalog.catalog import existing_columns, load_table, read_batches
from python_common.catalog.commits import until_committed
from python_common.config.settings import CATALOG_NAME
from python_common.errors import UserError
from python_common.text import spellings, trimmed
from python_ingest.bronze import erased, rewrite, topic_identity
from python_ingest.declare.persons import Subject
from python_ingest.declare.topics import Declaration, select
from python_ingest.maintenance.replay import POSITION

# The prefix of writers of erasures.
WRITER = "erase-"
COLUMNS_LEFT = {"kafka_topic", *POSITION, "kafka_timestamp", "kafka_timestamp_type", "ingested_at"}

# Generation, partition and offset of a row; a record has its topic before them.
RecordPosition = tuple[int, int, int]
Record = tuple[str, int, int, int]


@dataclass(frozen=True)
class Person:
    """A person to erase: a kind of subject that the sources declare, such as `shop.customer`, and the id."""

    kind: str
    id: str


@dataclass(frozen=True)
class RowsToErase:
    """The rows of one table to erase, without the `shared` values that rows of other persons name too.

    The address of two customers is such a value.
    """

    declaration: Declaration
    positions: frozenset[RecordPosition]
    shared: int = 0


def of_sources(declarations: Iterable[Declaration], persons: Iterable[Person]) -> tuple[Person, ...]:
    """Return persons with the source that numbers them: equal numbers in two sources are two persons.

    Raises:
        UserError: no source declares a kind, or two do and the person names neither.
    """
    kinds = sorted({subject.kind for declaration in declarations for subject in declaration.persons})
    resolved = []
    for person in persons:
        meant = [kind for kind in kinds if person.kind in (kind, kind.rpartition(".")[2])]
        if len(meant) > 1:
            raise UserError(
                f"{person.kind} is a kind of person in {len(meant)} sources, and equal ids are not the same person",
                f"Name one of {', '.join(meant)}; --subject is repeatable",
            )
        if not meant:
            raise UserError(
                # Not quoted: it may be the id.
                "No dbt source declares the kind of person of a --subject",
                f"Choose from {', '.join(kinds) or 'none'}, or declare it in config.meta.subjects of the source tables",
            )
        resolved.append(replace(person, kind=meant[0]))
    return tuple(resolved)


def find(catalog: Catalog, declarations: Iterable[Declaration], persons: Iterable[Person]) -> list[RowsToErase]:
    """Return the rows of persons, by table, that are not erased yet.

    Tables that are searched through another table come first: they cannot be searched once the other's rows are erased,
    and a killed erasure is completed by repeating it.

    Raises:
        UserError: a file of a table is damaged.
    """
    declarations, persons = list(declarations), list(persons)
    to_erase = []
    for declaration in declarations:
        table = load_table(catalog, declaration.identifier)
        positions: set[RecordPosition] = set()
        shared = 0
        for subject in declaration.persons:
            ids = spellings(person.id for person in persons if person.kind == subject.kind)
            if subject.through and ids:
                named, by_others = _named(catalog, declarations, declaration.schema, subject, ids)
                ids, shared = named - by_others, shared + len(by_others)
            if ids:
                for rows in _rows(table, subject.columns):
                    positions.update(_positions(rows.filter(_is_any(rows, subject.columns, ids))))
        if positions or shared:
            to_erase.append(RowsToErase(declaration, frozenset(positions), shared))
    return sorted(
        to_erase, key=lambda rows_of_table: not any(subject.through for subject in rows_of_table.declaration.persons)
    )


def everyone(
    catalog: Catalog, declarations: Iterable[Declaration], among: Iterable[Person] | None = None
) -> Iterator[Person]:
    """Yield every person whose id is in a bronze table; `among` some, with each spelling of an id as it landed."""
    persons = None if among is None else list(among)
    for declaration in declarations:
        table = load_table(catalog, declaration.identifier)
        for subject in declaration.persons:
            wanted = None if persons is None else spellings(one.id for one in persons if one.kind == subject.kind)
            ids: set[str] = set()
            for rows in _rows(table, subject.columns) if not subject.through and wanted != set() else ():
                for texts in (_texts(rows, column) for column in subject.columns):
                    ids.update((trimmed(texts) if wanted is None else texts.filter(_is_in(texts, wanted))).to_pylist())
            yield from (Person(subject.kind, text) for text in ids if text)


def named(catalog: Catalog, declarations: Iterable[Declaration], records: Iterable[Record]) -> list[RowsToErase]:
    """Return the rows at topic, generation, partition and offset, such as dead letters, which no column identifies.

    Raises:
        UserError: a topic is not declared, or a row is missing.
    """
    wanted: dict[str, set[RecordPosition]] = defaultdict(set)
    for topic, generation, partition, offset in records:
        wanted[topic].add((generation, partition, offset))
    to_erase = []
    for declaration in select(declarations, wanted) if wanted else ():
        topic = declaration.topic
        errors = _errors_at(load_table(catalog, declaration.identifier), wanted[topic])
        if lacking := sorted(wanted[topic] - errors.keys()):
            raise UserError(
                f"{declaration.identifier} has no row of {':'.join(map(str, (topic, *lacking[0])))}",
                f"See `lakehouse ingest dead-letters {topic} --show-raw`",
            )
        left = frozenset(position for position, error in errors.items() if not (error or "").startswith(erased.MARK))
        if left:
            to_erase.append(RowsToErase(declaration, left))
    return to_erase


def merge_by_table(to_erase: Iterable[RowsToErase]) -> list[RowsToErase]:
    """Merge the rows of each table, and keep the order of the tables."""
    tables: dict[str, RowsToErase] = {}
    for rows_of_table in to_erase:
        name = rows_of_table.declaration.identifier
        before = tables.get(name, RowsToErase(rows_of_table.declaration, frozenset()))
        tables[name] = RowsToErase(
            rows_of_table.declaration, before.positions | rows_of_table.positions, before.shared + rows_of_table.shared
        )
    return list(tables.values())


def erase(catalog: Catalog, spark: SparkSession, to_erase: RowsToErase, writer: str) -> int:
    """Empty the rows of one table that are not erased yet in one commit, and return their number.

    Raises:
        UserError: Spark fails, or other commits come first.
    """
    declaration = to_erase.declaration

    def erased_now() -> int:
        now = datetime.now(UTC)
        table = catalog.load_table(declaration.identifier)
        if property_keys.HAS_ERASED_ROWS not in table.properties:
            topic_identity.set_properties(table, {property_keys.HAS_ERASED_ROWS: "true"})
        _, partitions, offsets = zip(*to_erase.positions, strict=True)
        # The part of MERGE's condition that file statistics can prune by.
        where = (
            f"landed.kafka_partition in ({', '.join(map(str, sorted({*partitions})))})"
            f" and landed.kafka_offset between {min(offsets)} and {max(offsets)}"
        )

        def emptied(landed: DataFrame, number: int) -> DataFrame:
            return _emptied(landed, declaration, to_erase.positions, number, erased.mark(now))

        return rewrite.replace_rows(spark, table, writer, emptied, where, rewrite.ERASE)

    with rewrite.hold(catalog, declaration.identifier):
        return until_committed(
            erased_now,
            f"{declaration.identifier}: nothing was erased, other commits came first",
            "Run it again when the ingester of this topic has caught up",
        )


def _emptied(
    landed: DataFrame, declaration: Declaration, positions: Iterable[RecordPosition], number: int, mark: str
) -> DataFrame:
    """Return the rows at some positions as erased ones, with the table's current columns."""
    spark = landed.sparkSession
    columns = spark.table(f"{CATALOG_NAME}.{declaration.identifier}").schema
    chosen = spark.createDataFrame(sorted(positions), "_generation int, _partition int, _offset bigint")
    same = "coalesce(kafka_generation, 0) = _generation and kafka_partition = _partition and kafka_offset = _offset"
    rows = landed.join(F.broadcast(chosen), F.expr(same))
    new = {"decode_error": F.lit(mark), "ingest_batch": F.lit(number).cast("long")}
    new |= {name: F.col(name) for name in COLUMNS_LEFT}
    return rows.where(f"decode_error is null or not startswith(decode_error, '{erased.MARK}')").select(
        *(new.get(column.name, F.lit(None)).cast(column.dataType).alias(column.name) for column in columns)
    )


def _named(
    catalog: Catalog, declarations: list[Declaration], schema: str, subject: Subject, ids: set[str]
) -> tuple[set[str], set[str]]:
    """Return the values that the persons' rows of another table name, and those that rows of others name too."""
    by_table = {(declaration.schema, declaration.table): declaration for declaration in declarations}
    mine: set[str] = set()
    others: set[str] = set()

    def referring() -> Iterator[tuple[pa.Array, pa.Array]]:
        """Yield what rows name, and whether they are rows of the persons."""
        for name, column in subject.through:
            declaration = by_table[schema, name]
            columns = next(declared.columns for declared in declaration.persons if declared.kind == subject.kind)
            for rows in _rows(load_table(catalog, declaration.identifier), (*columns, column)):
                yield trimmed(_texts(rows, column)), _is_any(rows, columns, ids)

    for values, is_mine in referring():
        mine.update(values.filter(pc.and_(is_mine, pc.is_valid(values))).to_pylist())
    # An empty value names nothing.
    mine.discard("")
    for values, is_mine in referring():
        shared = pc.and_(pc.invert(is_mine), pc.is_in(values, pa.array([*mine], values.type)))
        others.update(values.filter(shared).to_pylist())
    return mine, others


def _rows(table: Table | None, columns: Iterable[str], where: str = "true") -> Iterator[pa.RecordBatch]:
    """Yield positions and those columns that the table has, if there is one; a nested field is named by its path."""
    if table is not None:
        yield from read_batches(table, where, existing_columns(table, (*POSITION, *columns)))


def _is_any(rows: pa.RecordBatch, columns: Iterable[str], ids: set[str]) -> pa.Array:
    """Return for each row whether one of the columns has one of the ids."""
    matches = pa.array([False] * len(rows), pa.bool_())
    for column in columns:
        matches = pc.or_(matches, _is_in(_texts(rows, column), ids))
    return matches


def _is_in(texts: pa.Array, ids: set[str]) -> pa.Array:
    return pc.is_in(trimmed(texts), pa.array([*ids], texts.type))


def _texts(rows: pa.RecordBatch, column: str) -> pa.Array:
    """Return a column as text; NULLs if the table lacks it."""
    first, *path = column.split(".")
    if first not in rows.schema.names:
        return pa.nulls(len(rows), pa.large_string())
    values = rows[first]
    try:
        for name in path:
            values = pc.struct_field(values, name)
        return pc.cast(values, pa.large_string())
    except pa.ArrowNotImplementedError:
        raise UserError(
            f"config.meta.subjects names the column {column}, which is a list or inside one: it cannot be searched",
            "Declare columns with one value per row, and name the rows of such a column by --offset",
        ) from None


def _positions(rows: pa.RecordBatch) -> Iterator[RecordPosition]:
    for row in rows.select([name for name in POSITION if name in rows.schema.names]).to_pylist():
        yield row.get("kafka_generation") or 0, row["kafka_partition"], row["kafka_offset"]


def _errors_at(table: Table | None, positions: set[RecordPosition]) -> dict[RecordPosition, str | None]:
    """Return the decode_error of the rows at some positions, without missing rows."""
    errors: dict[RecordPosition, str | None] = {}
    for _, partition, offset in positions:
        for rows in _rows(table, ("decode_error",), f"kafka_partition = {partition} and kafka_offset = {offset}"):
            errors.update(zip(_positions(rows), rows["decode_error"].to_pylist(), strict=True))
    return {position: errors[position] for position in positions & errors.keys()}
