"""The masks of macros/pii as syntax trees, to tell in compiled SQL whether an expression is one."""

import json
from dataclasses import dataclass
from pathlib import Path

import jinja2
import sqlglot
from sqlglot import exp

FILES = ("masks.sql", "pseudonym.sql")
AS_IS = "none"
VALUE = "__value__"


@dataclass(frozen=True)
class Mask:
    """A mask of a PII class; `tree` has a column `__value__` where the value goes, `value` is what stands there."""

    pii: str
    name: str
    tree: exp.Expr
    value: exp.Expr | None = None


@dataclass(frozen=True)
class Masks:
    """The PII classes with their masks, and the two expressions that may read the masking key."""

    classes: dict[str, tuple[str, ...]]
    masks: tuple[Mask, ...]
    key_version: exp.Expr

    def match(self, node: exp.Expr) -> Mask | None:
        """Return the mask that an expression is, as a whole, with the value it masks."""
        for mask in self.masks:
            bound: list[exp.Expr] = []
            if _same(mask.tree, node, bound):
                return Mask(mask.pii, mask.name, mask.tree, bound[0])
        return None

    def is_key_version(self, node: exp.Expr) -> bool:
        """Tell whether an expression is the version of the masking key."""
        return _same(self.key_version, node, [])


def load(directory: Path) -> Masks:
    """Return the masks that the macros in a directory render."""
    environment = jinja2.Environment(autoescape=False)
    environment.globals["return"] = json.dumps
    macros = environment.from_string("\n".join((directory / name).read_text() for name in FILES)).module

    def rendered(macro: str, *arguments: str) -> str:
        return str(getattr(macros, macro)(*arguments))

    classes = {name: tuple(masks) for name, masks in json.loads(rendered("pii_masks")).items()}
    return Masks(
        classes,
        tuple(
            Mask(pii, name, _tree(rendered("mask_as", VALUE, pii, name)))
            for pii, names in classes.items()
            if pii != AS_IS
            for name in names
        ),
        _tree(rendered("pii_key_version")),
    )


def _tree(sql: str) -> exp.Expr:
    return sqlglot.parse_one(f"select {sql}", dialect="spark", into=exp.Select).selects[0]


def _same(template: object, found: object, bound: list[exp.Expr]) -> bool:
    """Compare trees; what stands where the template has its value goes to `bound`, and must be alike everywhere."""
    if isinstance(template, exp.Column) and template.name == VALUE:
        if isinstance(found, exp.Expr):
            bound.append(found)
        return bool(bound) and bound[0] == found
    if isinstance(template, list) and isinstance(found, list):
        return len(template) == len(found) and all(
            _same(of_template, of_found, bound) for of_template, of_found in zip(template, found, strict=True)
        )
    if isinstance(template, exp.Expr) and isinstance(found, exp.Expr):
        return type(template) is type(found) and all(
            _same(template.args.get(name) or None, found.args.get(name) or None, bound)
            for name in template.args.keys() | found.args.keys()
        )
    return template == found
