"""The masks of macros/pii: as syntax trees, by which they are recognised in compiled SQL, and as SQL."""

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache

import jinja2
import sqlglot
from jinja2.environment import TemplateModule
from sqlglot import exp

from python_common.config.environment import PROJECT_ROOT

MACROS = PROJECT_ROOT / "macros" / "pii"
FILES = ("masks.sql", "pseudonym.sql")
AS_IS = "none"
# The mask that shows the value.
WHOLE = "as_is"
# Where a mask's tree has the value and the name of the source.
VALUE = "__value__"
SOURCE = "__source__"
# The text of macros that replace those of the files.
_OTHERS: ContextVar[str] = ContextVar("_OTHERS", default="")


@dataclass(frozen=True)
class Mask:
    """A mask of a PII class; in SQL, `value` is what it masks and `source` whose domain it uses."""

    pii: str
    name: str
    tree: exp.Expr
    value: exp.Expr | None = None
    source: str = ""


@dataclass(frozen=True, eq=False)
class Masks:
    """The PII classes and their masks, the types they take, the ends of masked names, and what may read the key."""

    classes: dict[str, tuple[str, ...]]
    types: dict[str, list[str]]
    suffixes: dict[str, str]
    masks: tuple[Mask, ...]
    key_version: exp.Expr

    def match(self, node: exp.Expr) -> Mask | None:
        """Return the mask that an expression is, as a whole, with the value it masks."""
        for mask in self.masks:
            bound: dict[str, exp.Expr] = {}
            if _same(mask.tree, node, bound):
                source = bound[SOURCE].name.rstrip(".") if SOURCE in bound else ""
                return Mask(mask.pii, mask.name, mask.tree, bound[VALUE], source)
        return None

    def is_key_version(self, node: exp.Expr) -> bool:
        """Return whether an expression is the version of the masking key."""
        return _same(self.key_version, node, {})


@contextmanager
def rendered_by(macros: Iterable[str]) -> Iterator[None]:
    """Take the masks of other macros meanwhile, such as those before a change; others are those of the files."""
    token = _OTHERS.set("\n".join(macros))
    try:
        yield
    finally:
        _OTHERS.reset(token)


def load() -> Masks:
    """Return the masks that the macros render."""
    return _load(_OTHERS.get())


@cache
def _load(_: str) -> Masks:
    classes = {name: tuple(masks) for name, masks in json.loads(_rendered("pii_masks")).items()}
    suffixes = json.loads(_rendered("mask_suffixes"))
    return Masks(
        classes,
        json.loads(_rendered("pii_types")),
        {name: suffixes.get(name, name) for names in classes.values() for name in names if name != WHOLE},
        tuple(Mask(pii, name, _tree(sql)) for (pii, name), sql in rendered().items()),
        _tree(_rendered("pii_key_version")),
    )


def rendered() -> dict[tuple[str, str], str]:
    """Return the SQL of each mask by class and name. A class that leaves as it is has none."""
    return {
        (pii, name): _rendered("mask_as", VALUE, pii, name, SOURCE)
        for pii, names in json.loads(_rendered("pii_masks")).items()
        for name in names
        if name != WHOLE
    }


def without_parts() -> frozenset[str]:
    """Return the masks that leave no part of a personal value."""
    return frozenset(json.loads(_rendered("masks_without_parts")))


def takes(pii: str, data_type: str | None) -> bool:
    """Return whether a column of a type, as Spark writes it, can have a class: its masks take it, or it is dropped."""
    if pii == AS_IS or not load().classes[pii]:
        return True
    return (data_type or "").lower() in load().types.get(pii, ("string", "int", "bigint"))


def pseudonyms(value: str, pii: str, source: str, pads: str) -> list[str]:
    """Return in Spark SQL the pseudonyms of a value of a class, as the models of a source have or had them.

    The first is that of today, the others those of former rules for white space.

    `value` is an expression, such as the name of a column. `pads` is a table or view of one row with the column
    `value`: the line of the key file, or of the copy of another version, which names its domain.
    """
    rules = json.loads(_rendered("text_rules"))
    return [_rendered("mask_as", value, pii, "pseudonym", source, pads, rule) for rule in rules]


def _rendered(macro: str, *arguments: str) -> str:
    return str(getattr(_module(_OTHERS.get()), macro)(*arguments))


@cache
def _module(others: str) -> TemplateModule:
    environment = jinja2.Environment(autoescape=False)
    environment.globals["return"] = json.dumps
    # The last of two macros of a name counts.
    return environment.from_string("\n".join([*((MACROS / name).read_text() for name in FILES), others])).module


def _tree(sql: str) -> exp.Expr:
    return sqlglot.parse_one(f"select {sql}", dialect="spark", into=exp.Select).selects[0]


def _same(template: object, tree: object, bound: dict[str, exp.Expr]) -> bool:
    """Compare trees; `bound` gets what the template's value and source match, the same wherever they occur."""
    if isinstance(template, exp.Column) and template.name == VALUE and isinstance(tree, exp.Expr):
        return bound.setdefault(VALUE, tree) == tree
    if isinstance(template, exp.Literal) and template.name == f"{SOURCE}." and isinstance(tree, exp.Literal):
        return bound.setdefault(SOURCE, tree) == tree
    if isinstance(template, list) and isinstance(tree, list):
        return len(template) == len(tree) and all(
            _same(of_template, of_tree, bound) for of_template, of_tree in zip(template, tree, strict=True)
        )
    if isinstance(template, exp.Expr) and isinstance(tree, exp.Expr):
        return type(template) is type(tree) and all(
            _same(template.args.get(name) or None, tree.args.get(name) or None, bound)
            for name in template.args.keys() | tree.args.keys()
        )
    return template == tree
