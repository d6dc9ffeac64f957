"""All variables: the table of docs/configuration.md, and the refusal of names that look misspelled.

`python -m python_jobs.commands.configuration write` writes the table, `check` compares it.
"""

import sys
from collections.abc import Mapping
from difflib import get_close_matches

from pydantic.fields import FieldInfo

from python_common.config.environment import PROJECT_ROOT
from python_common.config.settings import Settings
from python_common.config.variables import fields, written
from python_common.errors import UserError
from python_common.log import run_module
from python_export.variables import Channels, Choices

PREFIX = "LAKEHOUSE_"
# Words behind the prefix are as alike. `SERVICE_HOST`, which Kubernetes sets for a service named lakehouse, is not.
ALIKE = 0.8
PAGE = PROJECT_ROOT / "docs" / "configuration.md"
# Variables of former releases that withheld files, or kept a port closed: to ignore them would publish more.
REPLACED = {
    "LAKEHOUSE_EXPORT_MIN_PERSONS": "Give export models the test min_persons (docs/privacy.md), and unset it",
    "LAKEHOUSE_EXPORT_GRACE": "Declare config.meta.kafka.silence of topics (docs/operations.md), and unset it",
    "LAKEHOUSE_UNCLASSIFIED": "Run `lakehouse check pii` before `lakehouse weekly`, and unset it",
    "LAKEHOUSE_THRIFT_BIND": "Set LAKEHOUSE_THRIFT_HOST where the server starts (docs/upgrading.md), and unset it",
}
BEGIN, END = "<!-- Made by python -m python_jobs.commands.configuration write, from here -->", "<!-- to here -->"


def variables() -> dict[str, FieldInfo]:
    """Return the fields of all variables by their names."""
    return {name: field for part in (Settings, Choices, Channels) for name, field in fields(part).items()}


def refuse_misspelled(env: Mapping[str, str]) -> None:
    """Refuse an unknown variable with almost the name of a known one, and one that something else replaced.

    It would have no effect, and files could go to the wrong readers. Other names with the prefix may be of other
    programs.
    """
    ours = [name.removeprefix(PREFIX) for name in variables() if name.startswith(PREFIX)]
    for name in sorted(name for name in env if name.startswith(PREFIX)):
        if name in REPLACED:
            raise UserError(f"{name} has no effect any more", REPLACED[name])
        ending = name.removeprefix(PREFIX)
        near = [] if ending in ours else get_close_matches(ending.upper(), ours, 1, ALIKE)
        if near:
            raise UserError(f"{name} is an unknown variable", f"Rename it to {PREFIX}{near[0]}, or unset it")


def table() -> str:
    """Return all variables as a table in Markdown."""
    lines = ["| variable | value | default | read by | meaning |", "|---|---|---|---|---|"]
    for name, field in variables().items():
        facts = field.json_schema_extra
        if not isinstance(facts, dict):
            raise TypeError(f"{name} was not made by `variable`")
        default = facts["default_text"] or ("must be set" if field.is_required() else f"`{field.default}`")
        cells = (f"`{name}`", written(field), "" if default in ("``", "`None`") else default, facts["read_by"])
        lines.append(f"| {' | '.join(map(str, cells))} | {field.description} |")
    return "\n".join(lines)


def page(before: str) -> str:
    """Return the page with the current table."""
    head, rest = before.split(BEGIN)
    return f"{head}{BEGIN}\n\n{table()}\n\n{END}{rest.split(END)[1]}"


def main(command: str) -> None:
    """Run one of the commands write and check."""
    before = PAGE.read_text()
    if command == "write":
        PAGE.write_text(page(before))
    elif command == "check":
        if page(before) != before:
            raise UserError(f"{PAGE} is out of date", "Run `python -m python_jobs.commands.configuration write`")
    else:
        raise UserError(f"There is no command {command}", "Choose write or check")


if __name__ == "__main__":
    run_module(main, sys.argv[1])
