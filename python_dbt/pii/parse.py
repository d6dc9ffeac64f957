"""Reads SQL into a syntax tree, and refuses what may mean more to Spark than its tree has."""

from collections import Counter
from collections.abc import Set
from functools import lru_cache
from itertools import zip_longest

import sqlglot
from sqlglot import Token, TokenType, exp

# Functions that sqlglot does not know are not known to be functions of their arguments alone: `identifier` reads a
# column by a text, `reflect` runs Java, and anybody can create one.
UNKNOWN = (exp.Anonymous, exp.AnonymousAggFunc)
# Functions whose value depends on their arguments alone; that of lakehouse_bound is a batch, a day or a flag.
BUILT_IN = {"lakehouse_bound", "try_sum", "xxhash64"}
OUTSIDE = (exp.QueryTransform, exp.Placeholder, exp.Parameter, exp.SessionParameter, exp.Command)


class UnsupportedSql(Exception):
    """SQL that lineage cannot follow: what it would prove of it stays unproven."""


def statement(sql: str, classified: Set[str]) -> exp.Expr:
    """Return the syntax tree of a statement. `classified` are the names of columns that must not get lost in it.

    Raises:
        UnsupportedSql: it cannot be parsed, is more than one, or has something that its tree does not show.
    """
    if "${" in sql:
        raise UnsupportedSql("Spark would replace ${...} by a variable's value")
    tokens, trees = _parsed(sql)
    if len(trees) != 1:
        raise UnsupportedSql("it is not one statement")
    if any(token.token_type is TokenType.PIPE_GT for token in tokens):
        raise UnsupportedSql("it has a pipe |>")
    [tree] = trees
    for node in tree.walk():
        if isinstance(node, UNKNOWN) and node.name.lower() not in BUILT_IN:
            raise UnsupportedSql(f"it calls {node.name}, which is not a known function")
        if isinstance(node, OUTSIDE):
            raise UnsupportedSql(f"it has {kind(node)}")
        if isinstance(node, exp.Identifier) and "." in node.name:
            raise UnsupportedSql(f"it has the name `{node.name}`, whose dot looks like a qualifier's")
    _require_complete(tree, tokens, classified)
    return tree


# A proof reads each statement up to three times, a review on two sides.
@lru_cache(maxsize=1024)
def _parsed(sql: str) -> tuple[list[Token], list[exp.Expr]]:
    try:
        return sqlglot.tokenize(sql, read="spark"), [
            tree for tree in sqlglot.parse(sql, dialect="spark") if tree is not None
        ]
    except (sqlglot.ParseError, sqlglot.errors.TokenError):
        raise UnsupportedSql("it cannot be parsed") from None


def _require_complete(tree: exp.Expr, tokens: list[Token], classified: Set[str]) -> None:
    """Refuse a tree that lacks a name of the text: sqlglot drops arguments that a function has too many of."""
    written: Counter[str] = Counter()
    for token, following in zip_longest(tokens, tokens[1:]):
        is_function = following is not None and following.token_type is TokenType.L_PAREN
        is_name = token.token_type in (TokenType.VAR, TokenType.IDENTIFIER) and not is_function
        if is_name and token.text.lower() in classified:
            written[token.text.lower()] += 1
    parsed = Counter(node.name.lower() for node in tree.find_all(exp.Identifier, exp.Var))
    lost = sorted(name for name in written if written[name] > parsed[name])
    if lost:
        raise UnsupportedSql(f"its parser loses the name {lost[0]}")


def kind(node: exp.Expr) -> str:
    """Return what a node is, for a message."""
    return node.key.upper()
