"""Whether two texts of SQL mean the same, whatever their format, comments and names of CTEs and tables.

Only what is the same in every database counts as equal, so a difference may be harmless, but equality is not a guess:
two syntax trees are equal when all nodes are, and the names of CTEs and of aliases are exchanged one for one.
"""

from dataclasses import dataclass, field

import sqlglot
from sqlglot import TokenType, exp
from sqlglot.errors import SqlglotError

from python_dbt.pii.parse import UnsupportedSql, statement
from python_dbt.pii.proof import PADS

DIALECT = "spark"
# What depends on chance and may have arguments; any other function is stable if it has some.
CHANCE = (exp.Rand, exp.Randn, exp.Randstr, exp.Shuffle, exp.TableSample, exp.Uniform, exp.Uuid)
# Functions that are stable without arguments, too.
CONSTANT = (exp.AggFunc, exp.Array, exp.RowNumber)


@dataclass
class Shape:
    """A syntax tree as tuples, in which the names of CTEs and aliases are numbers, in order of appearance.

    `names` are these names by their kind; `others` are all other names in the tree, but for those of tables. Both are
    in lower case: Spark ignores that of names.
    """

    tree: object = None
    names: dict[str, list[str]] = field(default_factory=lambda: {"cte": [], "alias": []})
    others: set[str] = field(default_factory=set)

    def number(self, kind: str, name: str) -> tuple[str, int]:
        """Return what replaces a name."""
        names = self.names[kind]
        if name.lower() not in names:
            names.append(name.lower())
        return kind, names.index(name.lower())


def is_same_sql(before: str, after: str) -> bool:
    """Return whether two statements have equal trees; SQL that sqlglot cannot read equals only itself."""
    if before == after:
        return True
    try:
        first, second = shape(before), shape(after)
    except (SqlglotError, RecursionError):
        return False
    if first.tree != second.tree:
        return False
    for kind, names in first.names.items():
        renamed = [(old, new) for old, new in zip(names, second.names[kind], strict=True) if old != new]
        # A new alias that is also a column could take over its fields: `a.b` is a column of a table or of a struct.
        if any(old in first.others or new in second.others for old, new in renamed):
            return False
    return True


def is_volatile(sql: str) -> bool:
    """Return whether the rows of a query may depend on more than the rows of the tables it reads, as on the clock.

    They may in SQL that the proof of personal data does not take, such as a call of an unknown function.
    """
    try:
        return bool(sql) and any(map(_is_volatile, statement(sql, frozenset()).walk()))
    except UnsupportedSql:
        return True


def _is_volatile(node: exp.Expr) -> bool:
    if isinstance(node, exp.Table):
        # The name of a metadata table of Iceberg follows schema and table.
        return bool(node.catalog) and exp.table_name(node) != PADS
    if isinstance(node, exp.Cast) and node.this.is_string:
        # Literals of times may be words, such as 'now'.
        return node.to.is_type(*exp.DataType.TEMPORAL_TYPES) and not node.this.name.strip()[:1].isdigit()
    is_stable = any(node.args.values()) or isinstance(node, CONSTANT)
    return isinstance(node, CHANCE) or (isinstance(node, exp.Func) and not is_stable)


def shape(sql: str) -> Shape:
    """Return the canonical form of a statement; a SqlglotError if it cannot be read."""
    form = Shape()
    # In a tree the formats of times are others: two of Spark's can be one of sqlglot's.
    literals = [token.text for token in sqlglot.tokenize(sql, read=DIALECT) if token.token_type is TokenType.STRING]
    form.tree = [literals, *(_shape(tree, form) for tree in sqlglot.parse(sql, dialect=DIALECT))]
    return form


def _shape(node: object, form: Shape) -> object:
    if isinstance(node, list):
        return tuple(_shape(child, form) for child in node)
    if not isinstance(node, exp.Expr):
        return node
    subtree: list[object] = [type(node).__name__]
    arguments = dict(node.args)
    if isinstance(node, exp.Table) and not node.args.get("alias") and isinstance(node.this, exp.Identifier):
        # Its implicit alias, which a qualifier names.
        arguments["alias"] = exp.TableAlias(this=exp.to_identifier(node.name))
    for key, value in sorted(arguments.items()):
        if value is None or value is False or value == []:
            continue
        kind = _renamed(node, key)
        name = value.name if kind and isinstance(value, exp.Identifier) else ""
        subtree.append((key, form.number(kind, name) if kind and name else _shape(value, form)))
    if isinstance(node, exp.Identifier) and not isinstance(node.parent, exp.Table):
        form.others.add(node.name.lower())
    return tuple(subtree)


def _renamed(node: exp.Expr, key: str) -> str:
    """Return the kind of name that a part of a node is, '' if it is none that may be exchanged."""
    if isinstance(node, exp.TableAlias) and key == "this":
        return "cte" if isinstance(node.parent, exp.CTE) else "alias"
    if isinstance(node, exp.Column) and key == "table" and not node.args.get("db") and _is_alias(node):
        return "alias"
    if isinstance(node, exp.Table) and key == "this" and not node.args.get("db") and _is_cte(node):
        return "cte"
    return ""


def _is_alias(column: exp.Column) -> bool:
    """Return whether a qualifier is a name in the `from` of its query: a struct and its field look alike."""
    query = column.find_ancestor(exp.Select)
    args = query.args if query else {}
    tables = [args.get("from_"), *args.get("joins", ()), *args.get("laterals", ())]
    return column.table.lower() in {table.alias_or_name.lower() for table in tables if table}


def _is_cte(node: exp.Expr) -> bool:
    name = node.name.lower()
    return any(cte.alias.lower() == name for cte in node.root().find_all(exp.CTE))
