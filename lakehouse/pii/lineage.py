"""Which classified columns reach each column of a query, raw or masked.

This over-approximates: whatever stands anywhere in an expression reaches its result, so no function, case, window or
cast is a way out; only a mask is. What decides which rows there are, or in which order (where, join, group by, order
by), reaches every column. Counting plain columns tells nobody's value. SQL that this module does not know is not
guessed at: it raises `Unfollowed`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import sqlglot
from sqlglot import exp

from lakehouse.pii.masks import Masks


class Unfollowed(Exception):
    """Lineage cannot follow this SQL; whatever it proves is unproven then."""


@dataclass(frozen=True)
class Trace:
    """A classified column that reaches a place: raw if `mask` is None. `column` is written relation.column.

    `computed` says that it went through more than being carried along: a function, a cast, a comparison.
    """

    column: str
    pii: str
    mask: str | None = None
    computed: bool = False


Traces = frozenset[Trace]
NONE: Traces = frozenset()
CARRIES = (exp.Alias, exp.Coalesce, exp.Dot, exp.Paren, exp.Struct, exp.PropertyEQ)
# The class of bronze columns: what lands has none until staging declares it.
LANDED = "landed"


@dataclass(frozen=True)
class Relation:
    """The columns of a table or query with what reaches them by value; `steering` reaches all by deciding on rows.

    A field that differs from its column stands beside it, as `column.field`.
    """

    columns: tuple[tuple[str, Traces], ...]
    steering: Traces = NONE

    def flat(self) -> "Relation":
        """Return the relation as its readers see it."""
        return Relation(tuple((name, traces | self.steering) for name, traces in self.columns))

    def everything(self) -> Traces:
        return _union(traces for _, traces in self.columns) | self.steering


@dataclass(frozen=True)
class Scope:
    """What names mean at a place in a query."""

    tables: Mapping[str, Relation]
    masks: Masks
    sources: tuple[tuple[str, Relation], ...] = ()
    # Projections so far: Spark lets later ones refer to them.
    aliases: tuple[tuple[str, Traces], ...] = ()
    outer: "Scope | None" = field(default=None, repr=False)


def follow(sql: str, tables: Mapping[str, Relation], masks: Masks) -> Relation:
    """Return the columns that a statement gives: a query, or one that writes a query's rows.

    `tables` are the relations by name as they stand in the SQL.

    Raises:
        Unfollowed: the SQL cannot be parsed, or uses a relation, column or clause that is not known.
    """
    try:
        statement = sqlglot.parse_one(sql, dialect="spark")
    except sqlglot.ParseError:
        raise Unfollowed("it cannot be parsed") from None
    scope = Scope(tables, masks)
    if isinstance(statement, exp.Merge):
        return _merge(statement, scope)
    if isinstance(statement, exp.Create | exp.Insert) and isinstance(statement.expression, exp.Query):
        statement = statement.expression
    if not isinstance(statement, exp.Query):
        raise Unfollowed(f"it is not a query but {_kind(statement)}")
    return _query(statement, scope)


def _query(node: exp.Expression, scope: Scope) -> Relation:
    scope = _with_ctes(node, scope)
    if isinstance(node, exp.Subquery):
        _only(node, "this", "alias", "with_")
        return _query(node.this, scope)
    if isinstance(node, exp.SetOperation):
        _only(node, "this", "expression", "distinct", "with_")
        left, right = _query(node.this, scope), _query(node.expression, scope)
        if len(left.columns) != len(right.columns):
            raise Unfollowed("the arms of a set operation differ in columns")
        both = zip(left.columns, right.columns, strict=True)
        columns = tuple((name, traces | others) for (name, traces), (_, others) in both)
        # Which rows EXCEPT and INTERSECT keep is decided by all columns of both.
        by_value = NONE if isinstance(node, exp.Union) else left.everything() | right.everything()
        return Relation(columns, left.steering | right.steering | by_value)
    if isinstance(node, exp.Select):
        return _select(node, scope)
    raise Unfollowed(f"it has {_kind(node)} where a query is expected")


def _with_ctes(node: exp.Expression, scope: Scope) -> Scope:
    clause = node.args.get("with_")
    if clause is None:
        return scope
    _only(clause, "expressions")
    for cte in clause.expressions:
        _only(cte, "this", "alias")
        relation = _renamed(_query(cte.this, scope), cte.args["alias"])
        scope = replace(scope, tables={**scope.tables, cte.alias.lower(): relation})
    return scope


ROWS = ("where", "group", "having", "qualify", "order", "sort", "cluster", "distribute", "limit", "windows")


def _select(node: exp.Select, scope: Scope) -> Relation:
    _only(node, "with_", "expressions", "distinct", "from_", "joins", "laterals", *ROWS)
    inner = Scope(scope.tables, scope.masks, outer=scope)
    steering = NONE
    if node.args.get("from_"):
        inner = _add(inner, node.args["from_"].this)
    for join in node.args.get("joins") or ():
        _only(join, "this", "on", "using", "side", "kind", "method")
        inner = _add(inner, join.this)
        steering |= _union(_traces(part, inner) for part in [join.args.get("on"), *(join.args.get("using") or ())])
    for lateral in node.args.get("laterals") or ():
        inner = _add(inner, lateral)

    columns: list[tuple[str, Traces]] = []
    for projection in node.expressions:
        columns += _projection(projection, inner)
        inner = replace(inner, aliases=tuple(columns))
    for clause in ROWS:
        parts = node.args.get(clause)
        steering |= _union(_traces(part, inner) for part in (parts if isinstance(parts, list) else [parts]))
    if node.args.get("distinct"):
        steering |= _traces(node.args["distinct"], inner)
    return Relation(tuple(columns), steering | _union(source.steering for _, source in inner.sources))


def _projection(node: exp.Expression, scope: Scope) -> list[tuple[str, Traces]]:
    star = node.this if isinstance(node, exp.Column) else node
    if isinstance(star, exp.Star):
        _only(star, "except_")
        left_out = {column.name.lower() for column in star.args.get("except_") or ()}
        wanted = node.args["table"].name.lower() if isinstance(node, exp.Column) else None
        chosen = [source for name, source in scope.sources if wanted in (None, name)]
        if not chosen:
            raise Unfollowed("a star stands for no relation")
        return [column for source in chosen for column in source.columns if column[0] not in left_out]
    if isinstance(node, exp.Aliases):
        traces = _traces(node.this, scope)
        return [(name.name.lower(), traces) for name in node.expressions]
    return [(node.output_name.lower(), _traces(node, scope))]


def _add(scope: Scope, node: exp.Expression) -> Scope:
    """Return the scope with one more item of FROM."""
    if isinstance(node, exp.Table):
        _only(node, "this", "db", "catalog", "alias")
        name = ".".join(part.name for part in node.parts).lower()
        if name not in scope.tables:
            raise Unfollowed(f"it reads {name}, which is no relation of the project")
        relation = scope.tables[name]
    elif isinstance(node, exp.Subquery):
        relation = _query(node, scope)
    elif isinstance(node, exp.Values):
        rows = [row.expressions if isinstance(row, exp.Tuple) else [row] for row in node.expressions]
        relation = Relation(
            tuple(("", _union(_traces(v, scope) for v in column)) for column in zip(*rows, strict=True))
        )
    elif isinstance(node, exp.Lateral) and not isinstance(node.this, exp.Query | exp.Subquery):
        _only(node, "this", "alias", "view", "outer")
        traces = _traces(node.this, scope)
        alias = node.args.get("alias")
        relation = Relation(tuple((column.name.lower(), traces) for column in (alias.columns if alias else ())))
    else:
        raise Unfollowed(f"it reads from {_kind(node)}")
    if not isinstance(node, exp.Lateral):
        relation = _renamed(relation, node.args.get("alias"))
    return replace(scope, sources=(*scope.sources, (node.alias_or_name.lower(), relation)))


def _renamed(relation: Relation, alias: exp.Expression | None) -> Relation:
    names = [column.name.lower() for column in alias.columns] if alias else []
    if not names:
        return relation
    if len(names) != len(relation.columns):
        raise Unfollowed("a list of column names is shorter or longer than the columns")
    values = (traces for _, traces in relation.columns)
    return Relation(tuple(zip(names, values, strict=True)), relation.steering)


def _traces(node: exp.Expression | None, scope: Scope) -> Traces:
    """Return what reaches the result of an expression."""
    if node is None or _tells_nothing(node, scope):
        return NONE
    if mask := scope.masks.match(node):
        raw = _traces(mask.value, scope)
        return frozenset(
            replace(trace, mask=mask.name, computed=False) if trace.mask is None and trace.pii == mask.pii else trace
            for trace in raw
        )
    if isinstance(node, exp.Column | exp.Star | exp.Identifier):
        return _reference(node, scope)
    if isinstance(node, exp.Query):
        return _query(node, Scope(scope.tables, scope.masks, outer=scope)).everything()
    if isinstance(node, exp.Transform):
        reached = _transform(node, scope)
    elif (of_parameter := _field_of_parameter(node, scope)) is not None:
        reached = of_parameter
    else:
        parts = [node.this] if isinstance(node, exp.Alias) else node.iter_expressions()
        reached = _union(_traces(part, scope) for part in parts)
    return reached if isinstance(node, CARRIES) else frozenset(replace(trace, computed=True) for trace in reached)


def _transform(node: exp.Transform, scope: Scope) -> Traces:
    """Return what reaches an array of which each element is computed anew. The lambda's parameter is an element, with
    its fields told apart; how many there are tells of the old ones too, but not which fields of them are used."""
    array = _traces(node.this, scope)
    if not isinstance(node.expression, exp.Lambda):
        raise Unfollowed("TRANSFORM is without a lambda")
    element = Relation(((node.expression.expressions[0].name.lower(), array),))
    inner = replace(scope, sources=(*scope.sources, ("", element)))
    return _traces(node.expression.this, inner) | {trace for trace in array if trace.pii != LANDED}


def _field_of_parameter(node: exp.Expression, scope: Scope) -> Traces | None:
    if not isinstance(node, exp.Dot) or not isinstance(node.this, exp.Identifier):
        return None
    return _named(node.this.name.lower(), [node.expression.name.lower()], scope)


def _tells_nothing(node: exp.Expression, scope: Scope) -> bool:
    """Tell whether an expression is a type, the version of the masking key, or a count of plain columns."""
    if isinstance(node, exp.Count):
        plain = (exp.Distinct, exp.Struct, exp.Column, exp.Identifier, exp.Star, exp.Literal, exp.PropertyEQ)
        return all(isinstance(part, plain) for child in node.iter_expressions() for part in child.walk())
    return isinstance(node, exp.DataType) or scope.masks.is_key_version(node)


def _reference(node: exp.Expression, scope: Scope) -> Traces:
    if isinstance(node, exp.Star) or isinstance(node.this, exp.Star):
        return _union(traces for _, traces in _projection(node, scope))
    if isinstance(node, exp.Column):
        return _column([part.name.lower() for part in node.parts], scope)
    # A name where no column is expected, like a lambda's parameter or a field: if it is a column's too, it counts.
    return _named(node.name.lower(), [], scope) or NONE


def _column(parts: list[str], scope: Scope) -> Traces:
    """Return what reaches `column`, `source.column`, or a field of either."""
    if len(parts) > 1:
        for name, source in scope.sources:
            found = _of_source(source, parts[1], parts[2:]) if name == parts[0] else None
            if found is not None:
                return found
    found = _named(parts[0], parts[1:], scope)
    if found is not None:
        return found
    if scope.outer is None:
        raise Unfollowed(f"no relation it reads has a column {'.'.join(parts)}")
    return _column(parts, scope.outer)


def _named(name: str, fields: list[str], scope: Scope) -> Traces | None:
    found = [_of_source(source, name, fields) for _, source in scope.sources]
    found += [traces for alias, traces in scope.aliases if alias == name]
    known = [traces for traces in found if traces is not None]
    return _union(known) if known else None


def _of_source(source: Relation, name: str, fields: list[str]) -> Traces | None:
    for deepest in range(len(fields), -1, -1):
        path = ".".join([name, *fields[:deepest]])
        found = [traces for column, traces in source.columns if column == path]
        if found:
            below = fields[deepest:]
            return frozenset(
                replace(trace, column=".".join([trace.column, *below])) if trace.pii == LANDED else trace
                for trace in _union(found)
            )
    return None


def _merge(node: exp.Merge, scope: Scope) -> Relation:
    """Every column that MERGE reads reaches every column that it writes."""
    _only(node, "this", "using", "on", "whens")
    scope = _add(_add(scope, node.this), node.args["using"])
    parts = (node.args["on"], node.args["whens"])
    everything = scope.sources[1][1].everything() | _union(_traces(part, scope) for part in parts)
    return Relation(tuple((name, everything) for name, _ in scope.sources[0][1].columns))


def _only(node: exp.Expression, *known: str) -> None:
    for name, value in node.args.items():
        if value and name not in known:
            raise Unfollowed(f"{_kind(node)} has a clause {name.strip('_')}")


def _union(sets: Iterable[Traces]) -> Traces:
    return NONE.union(*sets)


def _kind(node: exp.Expression) -> str:
    return node.key.upper()
