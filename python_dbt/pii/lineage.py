"""Which classified columns reach each column of a query, raw or masked.

This over-approximates: whatever is anywhere in an expression reaches its result, so no function, case, window or
cast is a way out; only a mask is. What decides which rows there are, or in which order (where, join, group by,
distinct, union, order by), reaches every column; masked values do not by distinct and union, which show only how many
there are. Counting plain columns shows no value; counting distinct raw ones does.
SQL that this module does not know is not guessed at: it raises `UnsupportedSql`.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache

from sqlglot import exp

from python_dbt.pii.flows import LANDED, MASKING_KEY, NONE, Flows, Relation, Scope, carried, computed, union
from python_dbt.pii.masks import Mask, Masks, load
from python_dbt.pii.parse import UnsupportedSql, kind, statement

# What hands a value on as it is.
CARRIES = (exp.Alias, exp.Coalesce, exp.Dot, exp.Paren)


def follow(sql: str, tables: Mapping[str, Relation]) -> Relation:
    """Return the columns that a query gives: dbt compiles models to nothing else.

    `tables` are the relations by their names in the SQL.

    Raises:
        UnsupportedSql: the SQL cannot be parsed, or uses a relation, column or clause that is not known.
    """
    tree = statement(sql, (table.classified for table in tables.values()))
    if not isinstance(tree, exp.Query):
        raise UnsupportedSql(f"it is not a query but {kind(tree)}")
    names = {_named(table) for table in tree.find_all(exp.Table)} & tables.keys()
    return _followed(sql, frozenset((name, replace(tables[name], ordered=False)) for name in names), load())


# Equal SQL over equal relations has equal columns: a review proves two sides, which are mostly equal.
@cache
def _followed(sql: str, tables: frozenset[tuple[str, Relation]], _: Masks) -> Relation:
    return _query(statement(sql), Scope(dict(tables)))


def _named(table: exp.Table) -> str:
    return ".".join(part.name for part in table.parts).lower()


def _query(node: exp.Expr, scope: Scope) -> Relation:
    scope = _with_ctes(node, scope)
    if isinstance(node, exp.Subquery):
        _only(node, "this", "alias", "with_")
        return _query(node.this, scope)
    if isinstance(node, exp.SetOperation):
        _only(node, "this", "expression", "distinct", "with_")
        left, right = _query(node.this, scope), _query(node.expression, scope)
        if not (left.ordered and right.ordered):
            raise UnsupportedSql("a set operation takes the columns of a star by position")
        if len(left.columns) != len(right.columns):
            raise UnsupportedSql("the arms of a set operation differ in columns")
        both = zip(left.columns, right.columns, strict=True)
        columns = tuple((name, carried([flows, others])) for (name, flows), (_, others) in both)
        # Which rows EXCEPT and INTERSECT keep is decided by all columns of both.
        by_value = left.everything() | right.everything()
        if isinstance(node, exp.Union):
            by_value = _deduplicated(by_value) if node.args.get("distinct") else NONE
        return Relation(columns, left.indirect | right.indirect | computed(by_value))
    if isinstance(node, exp.Select):
        return _select(node, scope)
    raise UnsupportedSql(f"it has {kind(node)} where a query is expected")


def _with_ctes(node: exp.Expr, scope: Scope) -> Scope:
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
    _only(node, "with_", "hint", "expressions", "distinct", "from_", "joins", "laterals", *ROWS)
    inner = Scope(scope.tables, outer=scope)
    indirect = NONE
    if node.args.get("from_"):
        inner = _add(inner, node.args["from_"].this)
    for join in node.args.get("joins") or ():
        # Without a method: a natural join's keys are not in the SQL.
        _only(join, "this", "on", "using", "side", "kind")
        inner = _add(inner, join.this)
        indirect |= union(
            _flows(expression, inner) for expression in [join.args.get("on"), *(join.args.get("using") or ())]
        )
    for lateral in node.args.get("laterals") or ():
        inner = _add(inner, lateral)

    columns: list[tuple[str, Flows]] = []
    for projection in node.expressions:
        columns += _projection(projection, inner)
        inner = replace(inner, aliases=tuple(columns))
    for clause in ROWS:
        expressions = node.args.get(clause)
        for expression in expressions if isinstance(expressions, list) else [expressions]:
            indirect |= _flows(expression, inner)
            if expression is not None and _has_position(expression):
                indirect |= union(flows for _, flows in columns)
    if node.args.get("distinct"):
        _only(node.args["distinct"])
        indirect |= _deduplicated(union(flows for _, flows in columns))
    indirect |= union(source.indirect for _, source in inner.sources)
    stars = [projection for projection in node.expressions if projection.is_star]
    merged = any(join.args.get("using") for join in node.args.get("joins") or ())
    ordered = not stars or (not merged and all(source.ordered for star in stars for source in _starred(star, inner)))
    return Relation(tuple(columns), computed(indirect), ordered)


def _deduplicated(flows: Flows) -> Flows:
    """Return what decides how many equal rows stay: as in a count of distinct values, no masked one."""
    return frozenset(flow for flow in flows if flow.mask is None)


def _has_position(clause: exp.Expr) -> bool:
    """Return whether ORDER BY, GROUP BY and the like name a column by its number, or ALL of them."""
    if clause.args.get("all") or isinstance(clause, exp.Literal | exp.Var):
        return True
    listing = (exp.Group, exp.Order, exp.Sort, exp.Cluster, exp.Distribute, exp.Ordered, exp.Tuple, exp.Paren)
    sets = (exp.Cube, exp.Rollup, exp.GroupingSets)
    return isinstance(clause, listing + sets) and any(_has_position(part) for part in clause.iter_expressions())


def _starred(node: exp.Expr, scope: Scope) -> list[Relation]:
    wanted = node.args["table"].name.lower() if isinstance(node, exp.Column) else None
    chosen = [source for name, source in scope.sources if wanted in (None, name)]
    if not chosen:
        raise UnsupportedSql("a star has no relation")
    return chosen


def _projection(node: exp.Expr, scope: Scope) -> list[tuple[str, Flows]]:
    star = node.this if isinstance(node, exp.Column) else node
    if isinstance(star, exp.Star):
        _only(star, "except_")
        excluded = set()
        for column in star.args.get("except_") or ():
            if isinstance(column, exp.Column) and len(column.parts) > 1:
                raise UnsupportedSql(f"a star excludes {column.sql()}, which may be a field or of one relation alone")
            excluded.add(column.name.lower())
        chosen = _starred(node, scope)
        return [column for source in chosen for column in source.columns if column[0] not in excluded]
    if isinstance(node, exp.Aliases):
        flows = _flows(node.this, scope)
        return [(name.name.lower(), flows) for name in node.expressions]
    return [(node.output_name.lower(), _flows(node, scope))]


def _add(scope: Scope, node: exp.Expr) -> Scope:
    if isinstance(node, exp.Table):
        _only(node, "this", "db", "catalog", "alias")
        if not isinstance(node.this, exp.Identifier):
            raise UnsupportedSql(f"it reads from {kind(node.this)}")
        name = _named(node)
        if name not in scope.tables:
            raise UnsupportedSql(f"it reads {name}, which is not a relation of the project")
        relation = scope.tables[name]
    elif isinstance(node, exp.Subquery):
        relation = _query(node, scope)
    elif isinstance(node, exp.Values):
        rows = [row.expressions if isinstance(row, exp.Tuple) else [row] for row in node.expressions]
        relation = Relation(
            tuple(
                (f"col{number}", carried(_flows(value, scope) for value in column))
                for number, column in enumerate(zip(*rows, strict=True), start=1)
            )
        )
    elif isinstance(node, exp.Lateral) and not isinstance(node.this, exp.Query | exp.Subquery):
        _only(node, "this", "alias", "view", "outer")
        flows = _flows(node.this, scope)
        alias = node.args.get("alias")
        if not alias or not alias.columns:
            raise UnsupportedSql("LATERAL VIEW does not name its columns")
        relation = Relation(tuple((column.name.lower(), flows) for column in alias.columns))
    else:
        raise UnsupportedSql(f"it reads from {kind(node)}")
    if not isinstance(node, exp.Lateral):
        relation = _renamed(relation, node.args.get("alias"))
    return replace(scope, sources=(*scope.sources, (node.alias_or_name.lower(), relation)))


def _renamed(relation: Relation, alias: exp.TableAlias | None) -> Relation:
    names = [column.name.lower() for column in alias.columns] if alias else []
    if not names:
        return relation
    if not relation.ordered:
        raise UnsupportedSql("a list of column names takes the columns of a star by position")
    if len(names) != len(relation.columns):
        raise UnsupportedSql("a list of column names is shorter or longer than the columns")
    values = (flows for _, flows in relation.columns)
    return replace(relation, columns=tuple(zip(names, values, strict=True)))


def _flows(node: exp.Expr | None, scope: Scope) -> Flows:
    if node is None or _has_no_value(node, scope):
        return NONE
    if mask := load().match(node):
        return _masked(mask, _flows(mask.value, scope))
    if isinstance(node, exp.Column | exp.Star | exp.Identifier | exp.Var):
        return _reference(node, scope)
    if isinstance(node, exp.Query):
        return computed(_query(node, Scope(scope.tables, outer=scope)).everything())
    if isinstance(node, exp.Count) and isinstance(node.this, exp.Distinct) and _is_plain(node):
        raw = (flow for flow in _flows(node.this, scope) if flow.mask is None)
        return frozenset(replace(flow, computed=True, counted=True) for flow in raw)
    if isinstance(node, exp.Transform):
        reached = _transform(node, scope)
    elif (of_parameter := _field_of_parameter(node, scope)) is not None:
        reached = of_parameter
    else:
        operands = [node.this] if isinstance(node, exp.Alias) else node.iter_expressions()
        combine = carried if isinstance(node, exp.Coalesce) else union
        reached = combine(_flows(operand, scope) for operand in operands)
    return reached if isinstance(node, CARRIES) or _is_widened(node) else computed(reached)


def _is_widened(node: exp.Expr) -> bool:
    """Return whether an integer is cast to the widest one.

    It stays the same then, and what does not fit is NULL, where a cast would quote it. sqlglot takes any cast
    of Spark's for a try_cast, but only that one for safe.
    """
    return isinstance(node, exp.TryCast) and bool(node.args.get("safe")) and node.to.is_type("bigint")


def _masked(mask: Mask, raw: Flows) -> Flows:
    """Return what a mask lets through: of a computed value all of it, such as `last_four` of the first four digits.

    A pseudonym of anything but a carried column of its class shows which values have which pseudonyms. One in the
    domain of another source is of a person there.
    """
    maskable = {
        flow
        for flow in raw
        if flow.pii == mask.pii and flow.mask is None and not flow.computed and mask.source in ("", flow.source)
    }
    left = raw - maskable
    if mask.name == "pseudonym" and not maskable:
        left |= {MASKING_KEY}
    return left | {replace(flow, mask=mask.name) for flow in maskable}


def _transform(node: exp.Transform, scope: Scope) -> Flows:
    """Return what reaches an array whose elements are computed.

    The lambda's parameter is an element, with separate fields. The number of elements depends on the old ones,
    but not on which of their fields are used.
    """
    array = _flows(node.this, scope)
    if not isinstance(node.expression, exp.Lambda):
        raise UnsupportedSql("TRANSFORM is without a lambda")
    element = Relation(((node.expression.expressions[0].name.lower(), array),))
    inner = replace(scope, sources=(*scope.sources, ("", element)))
    return _flows(node.expression.this, inner) | {flow for flow in array if flow.pii != LANDED}


def _field_of_parameter(node: exp.Expr, scope: Scope) -> Flows | None:
    if not isinstance(node, exp.Dot) or not isinstance(node.this, exp.Identifier):
        return None
    return scope.named(node.this.name.lower(), [node.expression.name.lower()])


def _has_no_value(node: exp.Expr, scope: Scope) -> bool:
    """Return whether an expression is a type, the version of the masking key, or a count of plain columns."""
    if isinstance(node, exp.Count):
        return not isinstance(node.this, exp.Distinct) and _is_plain(node)
    return isinstance(node, exp.DataType) or load().is_key_version(node)


def _is_plain(count: exp.Count) -> bool:
    """Return whether a count is of columns, and not of conditions on them."""
    plain = (exp.Distinct, exp.Struct, exp.Column, exp.Identifier, exp.Star, exp.Literal, exp.PropertyEQ)
    return all(isinstance(part, plain) for child in count.iter_expressions() for part in child.walk())


def _reference(node: exp.Expr, scope: Scope) -> Flows:
    if isinstance(node, exp.Star) or isinstance(node.this, exp.Star):
        return union(flows for _, flows in _projection(node, scope))
    if isinstance(node, exp.Column):
        return scope.column([part.name.lower() for part in node.parts])
    # A name where no column is expected, like a lambda's parameter, a field or a unit: it counts if it is a column's.
    return scope.anywhere(node.name.lower())


def _only(node: exp.Expr, *understood: str) -> None:
    for name, value in node.args.items():
        if value and name not in understood:
            raise UnsupportedSql(f"{kind(node)} has a clause {name.strip('_')}")
