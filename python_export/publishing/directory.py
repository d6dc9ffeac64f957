"""An export root in a directory: each file is linked or renamed to its name once it is on the disk."""

import glob
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path, PurePosixPath
from stat import S_IMODE, S_ISDIR

from python_common.private_files import for_readers, sync, write
from python_export.publishing.layout import CONDITIONAL, FEED, INDEX, MANIFEST

# The staging area of a root that readers may enter, unlike this.
STAGING = ".staging"
DRAFT = re.compile(rf"\.([^.]+(\.odcs)?\.(json|html|yaml)|{re.escape(CONDITIONAL)})\.[0-9a-f]{{8}}")


@dataclass(frozen=True)
class Directory:
    """A directory; others may keep files in it, too."""

    root: Path

    @property
    def staging(self) -> Path:
        """A directory next to the versions, for a rename works within one file system."""
        return self.root / STAGING

    def address(self, path: str) -> str:
        """Return where people find a path."""
        return str(self.root / path)

    def listed(self, under: str, *patterns: str) -> Iterator[tuple[str, datetime]]:
        """Yield the files whose paths match a pattern after `under`, and when they were written."""
        for pattern in (glob.escape(under) + one for one in patterns):
            # Others may remove files and folders at any time.
            for path in glob.iglob(pattern, root_dir=self.root, include_hidden=True):  # noqa: PTH207 - Path's would fail
                with suppress(FileNotFoundError):
                    stat = (self.root / path).lstat()
                    if not S_ISDIR(stat.st_mode):
                        yield path, datetime.fromtimestamp(stat.st_mtime, UTC)

    def read(self, path: str) -> bytes:
        """Return the content of a file; FileNotFoundError if it is missing."""
        return (self.root / path).read_bytes()

    def fetch(self, path: str, scratch: Path) -> Path:
        """Return the file itself, not a copy; FileNotFoundError if it is missing."""
        if not (self.root / path).is_file():
            raise FileNotFoundError(self.root / path)
        return self.root / path

    def put(self, path: str, content: bytes) -> None:
        """Write a file, in the place of one that is there."""
        file = self.root / path
        with self._unlocked(self._open(file.parent)):
            write(file, content, for_readers(0o444 if file.name == MANIFEST else 0o666))

    def create(self, path: str, content: bytes) -> None:
        """Write a file if it is missing; FileExistsError if there is one, a UserError without hard links."""
        file = self.root / path
        with self._unlocked(self._open(file.parent)):
            write(file, content, for_readers(0o444), replaces=False)

    def upload(self, folder: Path, path: str) -> None:
        """Rename a folder of files to a new path, synced and read-only."""
        destination = self.root / path
        for file in folder.iterdir():
            file.chmod(for_readers(0o444))
            sync(file)
        with self._unlocked(self._open(destination.parent)):
            folder.rename(destination)
        # Not before: a directory that must not be written cannot be moved, either.
        destination.chmod(for_readers(0o555))
        for synced in self._above(destination):
            sync(synced)

    def delete(self, path: str) -> None:
        """Delete a file, if it is there, and the folders of its version and week that are empty then."""
        file = self.root / path
        with suppress(FileNotFoundError), self._unlocked(file.parent):
            file.unlink()
            sync(file.parent)
        with suppress(OSError):  # they hold other files
            for folder in [*PurePosixPath(path).parents][:-2]:
                (self.root / folder).rmdir()

    def delete_unfinished(self, folders: list[str], limit: datetime) -> None:
        """Delete what writers that died before `limit` left under hidden names."""
        drafts = [self.listed("", *(f".{name}.*" for name in (FEED, INDEX, CONDITIONAL)))]
        for path, written in chain(*drafts, *(self.listed(folder, ".*", "*/v*/.*") for folder in folders)):
            if DRAFT.fullmatch(PurePosixPath(path).name) and written <= limit:
                self.delete(path)

    def _above(self, folder: Path) -> list[Path]:
        return [directory for directory in (folder, *folder.parents) if directory.is_relative_to(self.root)]

    def _open(self, folder: Path) -> Path:
        """Make a folder that readers may enter, and all above it up to the root; repair one that a dead run left."""
        for directory in reversed(self._above(folder)):
            # What is there may be a file: that is the error of the operation, not another export's version.
            if is_new := not directory.exists():
                directory.mkdir(parents=True, exist_ok=True)
            # A root that was there before has the modes that its owner chose.
            if is_new or (directory != self.root and directory.is_dir() and not directory.stat().st_mode & 0o077):
                directory.chmod(for_readers(0o777))
        return folder

    @contextmanager
    def _unlocked(self, folder: Path) -> Iterator[None]:
        """Let the names in a folder change; FileNotFoundError if it is missing."""
        mode = S_IMODE(folder.stat().st_mode)
        if mode & 0o200:
            yield
            return
        folder.chmod(mode | 0o200)
        try:
            yield
        finally:
            folder.chmod(mode)
