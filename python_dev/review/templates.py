"""What dbt's templates of two commits have in common: their Jinja, and the SQL around it."""

from collections.abc import Collection
from dataclasses import dataclass, field

import sqlglot
from jinja2 import Environment
from jinja2.exceptions import TemplateSyntaxError
from sqlglot.errors import SqlglotError

from python_dev.review.canonical import DIALECT

# Of Jinja's lexer: what is not rendered.
NOT_RENDERED = ("whitespace", "comment", "comment_begin", "comment_end", "linecomment", "linecomment_begin")
PLACEHOLDER = "jinja_part_"
# What has another value in a run than in a compilation without a warehouse.
OF_THE_RUN = {
    *("adapter", "env_var", "flags", "invocation_id", "is_incremental", "load_cached_relation"),
    *("load_relation", "load_result", "run_query", "run_started_at", "statement", "target", "var"),
}


@dataclass
class Template:
    """A template in two parts: the tokens of its Jinja, one list per `{{ }}` or `{% %}`, and those of its SQL."""

    jinja: list[list[tuple[str, str]]] = field(default_factory=list)
    sql: list[tuple[object, str]] = field(default_factory=list)

    def names(self, in_blocks_alone: bool = False) -> set[str]:
        """Return the names that its Jinja uses."""
        tags = [tag for tag in self.jinja if not in_blocks_alone or tag[0][0] == "block_begin"]
        return {value for tag in tags for kind, value in tag if kind == "name"}


def read(text: str) -> Template:
    """Return a template without comments, and without white space where it means nothing.

    Raises:
        TemplateSyntaxError, SqlglotError: it cannot be read.
    """
    template, sql, is_inside = Template(), "", False
    for _, kind, value in Environment().lex(text):  # noqa: S701 - nothing is rendered
        if kind in NOT_RENDERED:
            continue
        if kind == "data" and not is_inside:
            sql += value
            continue
        if kind.endswith("_begin"):
            # Its position counts: in a literal, or as a part of a word.
            sql += f"{PLACEHOLDER}{len(template.jinja)}"
            template.jinja.append([])
        is_inside = not kind.endswith("_end")
        template.jinja[-1].append((kind, value))
    template.sql = [(token.token_type, token.text) for token in sqlglot.tokenize(sql, read=DIALECT)]
    return template


def is_same_template(before: str, after: str) -> bool:
    """Return whether two texts of Jinja and SQL differ in white space and comments alone."""
    try:
        return before == after or read(before) == read(after)
    except (TemplateSyntaxError, SqlglotError):
        return False


def is_decided_when_compiled(before: str, after: str, of_the_run: Collection[str]) -> bool:
    """Return whether two templates mean the same if their compiled SQL does.

    `of_the_run` are the macros that give other SQL in a run than when it is compiled without a warehouse. A template
    may call them in `{{ }}`, if the Jinja of both is equal: what differs is SQL then, which compiled SQL shows.
    """
    try:
        both = read(before), read(after)
    except (TemplateSyntaxError, SqlglotError):
        return False
    if any(template.names() & OF_THE_RUN or template.names(in_blocks_alone=True) & {*of_the_run} for template in both):
        return False
    return both[0].jinja == both[1].jinja or not any(template.names() & {*of_the_run} for template in both)
