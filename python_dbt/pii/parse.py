"""Reads SQL into a syntax tree, and refuses what may mean more to Spark than its tree has."""

from collections import Counter
from collections.abc import Iterable, Set
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


def statement(sql: str, classified: Iterable[Set[str]] = ()) -> exp.Expr:
    """Return the syntax tree of a statement. `classified` has the names of columns that must not get lost in it.

    Raises:
        UnsupportedSql: it cannot be parsed, is more than one, or has something that its tree does not show.
    """
    tree, lost = _parsed(sql)
    # There are a thousand sets, and seldom a lost name.
    if lost and (names := lost & frozenset().union(*classified)):
        raise UnsupportedSql(f"its parser loses the name {min(names)}")
    return tree


# A proof reads each statement several times, a review on two sides.
@lru_cache(maxsize=1024)
def _parsed(sql: str) -> tuple[exp.Expr, Set[str]]:
    """Return the tree of a statement, and the names that it lacks."""
    if "${" in sql:
        raise UnsupportedSql("Spark would replace ${...} by a variable's value")
    try:
        tokens = sqlglot.tokenize(sql, read="spark")
        trees = [tree for tree in sqlglot.parse(sql, dialect="spark") if tree is not None]
    except (sqlglot.ParseError, sqlglot.errors.TokenError):
        raise UnsupportedSql("it cannot be parsed") from None
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
    return tree, _lost(tree, tokens)


def _lost(tree: exp.Expr, tokens: list[Token]) -> Set[str]:
    """Return the names of the text that a tree lacks: sqlglot drops arguments that a function has too many of."""
    written: Counter[str] = Counter()
    for token, following in zip_longest(tokens, tokens[1:]):
        is_function = following is not None and following.token_type is TokenType.L_PAREN
        if token.token_type in (TokenType.VAR, TokenType.IDENTIFIER) and not is_function:
            written[token.text.lower()] += 1
    parsed = Counter(node.name.lower() for node in tree.find_all(exp.Identifier, exp.Var))
    return (written - parsed).keys()


def kind(node: exp.Expr) -> str:
    """Return what a node is, for a message."""
    return node.key.upper()
