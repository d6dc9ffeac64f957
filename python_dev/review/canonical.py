"""Whether two texts of SQL, or two of dbt's templates, mean the same whatever their format and comments.

Only what is the same in every database counts as equal, so a difference may be harmless, but equality is not a guess.
"""

import sqlglot
from jinja2 import Environment
from jinja2.exceptions import TemplateSyntaxError
from sqlglot import exp
from sqlglot.errors import SqlglotError

from python_dbt.pii.parse import UnsupportedSql, statement
from python_dbt.pii.proof import PADS

DIALECT = "spark"
# What depends on chance and may have arguments; any other function is stable if it has some.
CHANCE = (exp.Rand, exp.Randn, exp.Randstr, exp.Shuffle, exp.TableSample, exp.Uniform, exp.Uuid)
# Functions that are stable without arguments, too.
CONSTANT = (exp.AggFunc, exp.Array, exp.RowNumber)
# Of Jinja's lexer: what is not rendered.
NOT_RENDERED = ("whitespace", "comment", "linecomment")


def is_same_sql(before: str, after: str) -> bool:
    """Return whether two statements have equal trees; SQL that sqlglot cannot read equals only itself."""
    try:
        return before == after or _trees(before) == _trees(after)
    except (SqlglotError, RecursionError):
        return False


def _trees(sql: str) -> list[object]:
    # In a tree the formats of times are others: two of Spark's can be one of sqlglot's.
    tokens = sqlglot.tokenize(sql, read=DIALECT)
    literals = [token.text for token in tokens if token.token_type.name.endswith("STRING")]
    return [literals, *sqlglot.parse(sql, dialect=DIALECT)]


def is_same_template(before: str, after: str) -> bool:
    """Return whether two texts of Jinja and SQL differ in white space and comments alone."""
    try:
        return before == after or _template(before) == _template(after)
    except (TemplateSyntaxError, SqlglotError):
        return False


def _template(text: str) -> tuple[list[tuple[str, str]], list[tuple[object, str]]]:
    """Return the tokens of a template's Jinja, and those of its SQL, in which each of the former has its place."""
    jinja: list[tuple[str, str]] = []
    sql = ""
    for _, kind, value in Environment().lex(text):  # noqa: S701 - nothing is rendered
        if kind == "data":
            sql += value
        elif not kind.startswith(NOT_RENDERED):
            sql += f"jinja{len(jinja)}_"
            jinja.append((kind, value))
    return jinja, [(token.token_type, token.text) for token in sqlglot.tokenize(sql, read=DIALECT)]


def is_volatile(sql: str) -> bool:
    """Return whether the rows of a query may depend on more than the rows of the tables it reads, as on the clock.

    They may in SQL that the proof of personal data does not take, such as a call of an unknown function.
    """
    try:
        return bool(sql) and any(map(_is_volatile, statement(sql).walk()))
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
