"""Reads variables from the process environment, else from the env file that `lakehouse stack up` wrote."""

import os
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from python_common import private_files
from python_common.errors import UserError

PROJECT_ROOT = Path(__file__).resolve().parents[2]
# The jars and what is made of them, by `make setup`.
TARGET = PROJECT_ROOT / "python_common" / "spark" / "target"


@contextmanager
def changed_environment(values: Mapping[str, str]) -> Iterator[None]:
    """Set variables of this process, and of those that it starts, inside the block; afterwards all are as before."""
    before = dict(os.environ)
    os.environ.update(values)
    try:
        yield
    finally:
        # Not by clearing all: other threads read variables meanwhile.
        for name in os.environ.keys() - before.keys():
            del os.environ[name]
        os.environ.update(before)


def home() -> Path:
    """Return the directory that holds the local stack's state: `LAKEHOUSE_HOME`, else `.lakehouse` in the project."""
    return Path(os.environ.get("LAKEHOUSE_HOME") or PROJECT_ROOT / ".lakehouse").absolute()


def landed_rows() -> Path:
    """Return the directory of the landed rows, of persons, that a review has in use; an erasure deletes it."""
    return home() / "landed-rows"


def env_file() -> Path:
    """Return the path of the env file: `export KEY=value` lines, mode 0600."""
    return home() / "env"


def read_env_file(path: Path) -> dict[str, str]:
    """Return the variables of an env file; an absent file holds none.

    Raises:
        UserError: it cannot be read, or has another form.
    """
    try:
        words = shlex.split(path.read_text(), comments=True)
        return dict(word.split("=", 1) for word in words if word != "export")
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        cause = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else "not lines of KEY=value"
        raise UserError(f"{path} cannot be read ({cause})", "Correct the file or its rights") from None


def write_env_file(path: Path, values: Mapping[str, str]) -> Path:
    """Write an env file, 0600; both a shell's `source` and `uv run --env-file` can read it."""
    lines = (f"export {name}={shlex.quote(value)}\n" for name, value in sorted(values.items()))
    return private_files.write(path, "".join(lines))


def environment() -> dict[str, str]:
    """Return the variables of the env file, overridden by those of the process."""
    in_file = read_env_file(env_file())
    if "LAKEHOUSE_SMTP_HOST" in os.environ:
        # The file's settings of the local mail server are wrong for another one.
        in_file = {name: value for name, value in in_file.items() if not name.startswith("LAKEHOUSE_SMTP_")}
    return {**in_file, **os.environ}
