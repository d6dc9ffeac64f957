"""Variables of the environment as typed, frozen values: the base of the models that name them.

A field has all facts of a variable: name, type, default, meaning, and which part reads it. The table of
docs/configuration.md is made from these fields.
"""

import math
import re
from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import partial
from typing import Annotated, Any, Literal, Self, get_args, get_origin

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic.fields import FieldInfo

from python_common.errors import UserError

# Spans beyond it would overflow where they are added to a time.
MOST_SECONDS = 100 * 366 * 86400


class MalformedError(ValueError):
    """A malformed value, by two texts: what goes on after the variable's name ("is not a URL"), and the remedy."""


def seconds(text: str) -> float:
    """Return the seconds of a duration such as `500ms`, `30s`, `5m`, `1h`, `7d`, `26w`; a UserError for other text."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(ms|s|m|h|d|w)?", text.strip())
    units = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604_800}
    duration = float(match[1]) * units[match[2] or "s"] if match else math.inf
    if duration > MOST_SECONDS:
        raise UserError(f"'{text}' is not a duration", "Write it like 500ms, 30s, 5m, 1h, 7d or 26w, up to 100 years")
    return duration


def _duration(value: Any) -> Any:
    try:
        return timedelta(seconds=seconds(value)) if isinstance(value, str) else value
    except UserError as error:
        raise MalformedError(f"is '{value}', which is not a duration", error.remedy) from None


# A text next to a type is how a value of it is written.
Duration = Annotated[timedelta, BeforeValidator(_duration), "a duration"]
Limit = Annotated[timedelta, BeforeValidator(_duration), Field(gt=timedelta(0)), "a duration above 0"]
Port = Annotated[int, Field(gt=0, lt=65_536), "a port from 1 to 65535"]


def variable(
    name: str,
    meaning: str,
    default: Any = ...,
    *,
    read_by: str = "all",
    secret: bool = False,
    factory: Callable[..., Any] | None = None,
    default_text: str = "",
) -> Any:
    """Return the field of one variable; without a default it must be set.

    `read_by` names the parts that read it. `factory` makes a default out of the fields before it, and `default_text`
    is its text in the documentation. No message shows a secret.
    """
    more: dict[str, Any] = {"default_factory": factory} if factory else {"default": default}
    facts = {"read_by": read_by, "default_text": default_text}
    return Field(alias=name, description=meaning, repr=not secret, json_schema_extra={**facts}, **more)


for_exports = partial(variable, read_by="weekly, export, erase")


class Variables(BaseModel):
    """Some variables. A field that is a model too is a part: its variables are read from the same environment.

    A part whose default is None is there if its first variable is set.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", validate_by_name=True, validate_default=True, hide_input_in_errors=True
    )

    @classmethod
    def of(cls, env: Mapping[str, str]) -> Self:
        """Return the values in an environment. A variable that is empty counts as not set.

        Raises:
            UserError: a variable is missing, malformed, or contradicts another.
        """
        try:
            return cls.model_validate(_input(cls, env))
        except ValidationError as error:
            raise _to_user_error(fields(cls), error) from None

    @classmethod
    def variable(cls, field: str) -> str:
        """Return the name of a field's variable."""
        return str(cls.model_fields[field].alias)

    def needed(self, field: str) -> Any:
        """Return a value that may be absent, where there is no doing without it; a UserError if it is."""
        value = getattr(self, field)
        if value is None:
            raise _missing(self.variable(field))
        return value

    def changed(self, **values: Any) -> Self:
        """Return a copy with other values, checked as those of an environment are."""
        return type(self)(**{name: getattr(self, name) for name in type(self).model_fields} | values)


def fields(model: type[Variables]) -> dict[str, FieldInfo]:
    """Return the fields of a model and its parts, by their variables."""
    by_alias: dict[str, FieldInfo] = {}
    for field in model.model_fields.values():
        part = _part(field)
        by_alias |= fields(part) if part else {str(field.alias): field}
    return by_alias


def written(field: FieldInfo) -> str:
    """Return how a value is written, for documentation and remedies; empty if its meaning suffices."""
    if get_origin(field.annotation) is Literal:
        return f"one of {', '.join(f'`{choice}`' for choice in get_args(field.annotation) if choice)}"
    return "".join(text for text in field.metadata if isinstance(text, str))


def _part(field: FieldInfo) -> type[Variables] | None:
    kinds = (field.annotation, *get_args(field.annotation))
    return next((kind for kind in kinds if isinstance(kind, type) and issubclass(kind, Variables)), None)


def _input(model: type[Variables], env: Mapping[str, str]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name, field in model.model_fields.items():
        part = _part(field)
        if part is None:
            values |= {str(field.alias): env[str(field.alias)]} if env.get(str(field.alias)) else {}
        elif field.default_factory or env.get(next(iter(fields(part)))):
            values[name] = _input(part, env)
    return values


def _to_user_error(by_alias: Mapping[str, FieldInfo], error: ValidationError) -> UserError:
    first = error.errors(include_url=False)[0]
    name = str(first["loc"][-1])
    cause = first.get("ctx", {}).get("error")
    if isinstance(cause, MalformedError):
        issue, remedy = cause.args
        return UserError(f"{name} {issue}", remedy)
    if first["type"] == "missing":
        return _missing(name)
    field = by_alias[name]
    value = f"'{first['input']}'" if field.repr else "malformed"
    choices = written(field).replace("`", "")
    return UserError(f"{name} is {value}", f"Set it to {choices}" if choices else "Correct it")


def _missing(name: str) -> UserError:
    return UserError(f"{name} is not set", "Run `lakehouse stack up`, or set it in the environment")
