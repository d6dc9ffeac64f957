"""Keeps what the commands write to their own user: lake, staging and logs hold personal data, whoever else logs in."""

import os
from pathlib import Path

UMASK = 0o077
# The umask of what called the command: there is no way to ask without setting it.
_callers_umask = os.umask(UMASK)
os.umask(_callers_umask)


def set_umask() -> None:
    """Have this process, and what it starts, create files and directories for its user alone."""
    os.umask(UMASK)


def for_readers(mode: int) -> int:
    """Return the mode that a published file or directory has: what the umask of the command's caller allows."""
    return mode & ~_callers_umask


def directory(path: Path) -> Path:
    """Have a directory that its owner alone may enter, also if it was there before and open to others."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    if path.stat().st_uid == os.geteuid():
        path.chmod(path.stat().st_mode & ~UMASK)
    return path


def write(path: Path, content: str | bytes) -> Path:
    """Write a file that its owner alone may read, in the place of an older one at once."""
    draft = path.with_name(f"{path.name}.new")
    draft.unlink(missing_ok=True)
    draft.touch(mode=0o600)
    draft.write_bytes(content.encode() if isinstance(content, str) else content)
    return draft.replace(path)
