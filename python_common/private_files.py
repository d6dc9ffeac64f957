"""Restricts the files of the commands to their user: lake, staging and logs hold personal data."""

import os
import secrets
import shutil
from contextlib import suppress
from pathlib import Path

from python_common.errors import UserError

UMASK = 0o077
# The umask of the caller, which cannot be read without setting it.
_callers_umask = os.umask(UMASK)
os.umask(_callers_umask)


def set_umask() -> None:
    """Make this process and its children create files and directories for their user alone."""
    os.umask(UMASK)


def for_readers(mode: int) -> int:
    """Return the mode of a published file or directory, by the umask of the command's caller."""
    return mode & ~_callers_umask


def directory(path: Path) -> Path:
    """Create a directory that its owner alone may enter, or close an open one."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    if path.stat().st_uid == os.geteuid():
        path.chmod(path.stat().st_mode & ~UMASK)
    return path


def write(path: Path, content: str | bytes, mode: int = 0o600, replaces: bool = True) -> Path:
    """Write a file that its owner alone may read, or with another mode, whole or not at all.

    It is written under a hidden name, and replaces an older one; or it is linked to its name.

    Raises:
        FileExistsError: an older one must not be replaced.
        UserError: it cannot be linked.
    """
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        draft.touch(mode=0o600)
        draft.write_bytes(content.encode() if isinstance(content, str) else content)
        draft.chmod(mode)
        sync(draft)
        if replaces:
            draft.replace(path)
        else:
            _link(path, draft)
    finally:
        draft.unlink(missing_ok=True)
    sync(path.parent)
    return path


def _link(path: Path, draft: Path) -> None:
    try:
        path.hardlink_to(draft)
    except FileExistsError:
        raise
    except OSError as error:
        raise UserError(
            f"{path} cannot be made: {error.strerror}", "Use a file system with hard links, such as ext4, XFS or NFS"
        ) from None


def sync(path: Path) -> None:
    """Wait until a file, or the names in a directory, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def delete(path: Path) -> None:
    """Delete a file, or a directory with all that is in it, published versions too; a UserError if files are left."""
    # Directories of published versions are read-only: those of uploads, and in releases before 0.7 those of manifests.
    for folder in (*path.glob("**/v*/lakehouse-*"), *(file.parent for file in path.glob("**/v*/manifest.json"))):
        folder.chmod(0o700)
    shutil.rmtree(path, ignore_errors=True)
    with suppress(OSError):
        path.unlink()
    if path.exists():
        raise UserError(f"Files in {path} could not be deleted", "Delete them as their owner, then give it again")
