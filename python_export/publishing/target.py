"""Where versions go: a local directory, or a prefix of an S3 bucket. Readers see a version as a whole or not at all.

Paths are relative to the export root, `order_lines/2026-W46/v1` for instance. Locally a version is committed by the
rename of its directory, on S3 by its manifest. Of two writers of one version the second gets a FileExistsError.
"""

import errno
import hashlib
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from itertools import chain
from pathlib import Path
from urllib.parse import urlsplit

from python_common.config.settings import Settings
from python_common.errors import UserError
from python_common.locks.lock import lock
from python_common.private_files import for_readers, sync, write
from python_export.publishing.layout import FEED, INDEX, UNFINISHED, VERSION, Layout
from python_export.publishing.s3_target import S3Target

# The staging area of a root that readers may enter, unlike this.
STAGING = ".staging"


@dataclass(frozen=True)
class LocalTarget(Layout):
    """A directory."""

    root: Path
    url: str = ""

    @property
    def staging(self) -> Path:
        """A directory next to the versions, for a rename works within one file system."""
        return self.root / STAGING

    def address(self, path: str) -> str:
        """Return where people find a path."""
        return str(self.root / path)

    def versions(self, under: str = "") -> list[str]:
        """Return the versions that readers see, or those under `<dataset>/`.

        Files that others keep under the root are not versions.
        """
        # What other runs have in staging may vanish under a walk.
        names = (str(path.relative_to(self.root)) for path in self.root.glob(f"{under or '[!.]*/'}*/v*"))
        return [name for name in names if VERSION.fullmatch(name)]

    def files(self, path: str) -> list[str]:
        """Return the files of a version, or of another directory."""
        return [str(file.relative_to(self.root)) for file in (self.root / path).glob("*")]

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
        self._open(file.parent)
        with self._unlocked(file.parent) as is_version:
            write(file, content, for_readers(0o444 if is_version else 0o666))

    def delete(self, path: str) -> None:
        """Delete a file, if it is there."""
        file = self.root / path
        with self._unlocked(file.parent):
            file.unlink(missing_ok=True)

    def folder(self) -> str:
        """Return the empty string: a version is renamed as a whole, so its files need no separate folder."""
        return ""

    def add(self, directory: Path, path: str) -> None:
        """Rename the directory into place, synced and read-only; FileExistsError if there is a version."""
        destination = self.root / path
        # Before the rename: a process that dies after it must leave a version that readers can open.
        directory.chmod(for_readers(0o755))
        for file in directory.iterdir():
            file.chmod(for_readers(0o444))
            sync(file)
        sync(directory)
        self._open(destination.parent)
        try:
            directory.rename(destination)
        except OSError as error:
            # A directory takes the place of an empty one at most.
            raise FileExistsError(destination) if error.errno == errno.ENOTEMPTY else error from None
        # Not before: a directory that must not be written cannot be moved either.
        destination.chmod(for_readers(0o555))
        for parent in (destination.parent, destination.parent.parent, self.root):
            sync(parent)

    def remove(self, path: str) -> None:
        """Delete a version: by a rename to staging, so that readers find all of it or nothing."""
        directory = self.root / path
        self.staging.mkdir(parents=True, exist_ok=True)
        removed = self.staging / uuid.uuid4().hex
        # A directory that must not be written cannot be moved.
        directory.chmod(0o755)
        directory.rename(removed)
        shutil.rmtree(removed)
        with suppress(OSError):  # its week has other versions
            directory.parent.rmdir()

    @contextmanager
    def _unlocked(self, folder: Path) -> Iterator[bool]:
        """Let the files of a folder be replaced and deleted, and yield whether it is a version, which is read-only."""
        is_version = VERSION.fullmatch(str(folder.relative_to(self.root))) is not None
        if is_version:
            folder.chmod(for_readers(0o755))
        yield is_version
        if is_version:
            sync(folder)
            folder.chmod(for_readers(0o555))

    def _open(self, folder: Path) -> None:
        """Make a folder that readers may enter, and all above it up to the root; repair one that a dead run left."""
        above = [directory for directory in (folder, *folder.parents) if directory.is_relative_to(self.root)]
        for directory in reversed(above):
            # What is there may be a file: that is the error of the rename, not another export's version.
            if is_new := not directory.exists():
                directory.mkdir(parents=True, exist_ok=True)
            # A root that was there before has the modes that its owner chose.
            if is_new or (directory != self.root and directory.is_dir() and not directory.stat().st_mode & 0o077):
                directory.chmod(for_readers(0o777))

    def _clean(self, folders: list[str], limit: datetime) -> None:
        for version in (self.root / path for folder in folders for path in self.versions(folder)):
            # Its writer died before it could forbid to write it.
            if version.stat().st_mode & 0o200:
                version.chmod(for_readers(0o555))
        patterns = [*(f"{folder}.*" for folder in folders), f".{FEED}.*", f".{INDEX}.*"]
        for file in chain.from_iterable(map(self.root.glob, patterns)):
            # Its writer may rename it at any time.
            with suppress(FileNotFoundError):
                if UNFINISHED.fullmatch(file.name) and file.stat().st_mtime <= limit.timestamp():
                    file.unlink()


# What both have is their interface.
Target = LocalTarget | S3Target


def open_target(settings: Settings) -> Target:
    """Return the target that LAKEHOUSE_EXPORT_ROOT names.

    Raises:
        UserError: it is not set, is a URL, but not one of a bucket, or the AWS_* variables are wrong.
    """
    root = settings.needed("export_root")
    if "://" not in root:
        return LocalTarget(Path(root).absolute(), settings.export_url)
    url = urlsplit(root)
    if url.scheme != "s3" or not url.netloc:
        raise UserError(
            f"LAKEHOUSE_EXPORT_ROOT is {root}", "Give a local directory or an address like s3://bucket/prefix"
        )
    return S3Target.at(url, settings.export_staging, settings.export_url)


@contextmanager
def staging(private: Path) -> Iterator[Path]:
    """Yield an empty directory in a target's staging area; it is gone afterwards.

    A second run waits for the first. So whatever is there at the start was left by a run that died, and is removed.

    Raises:
        UserError: the area cannot be written, or a file operation failed, for instance on a full disk.
    """
    try:
        if private.name == STAGING and not private.parent.exists():
            private.parent.mkdir(parents=True)
            private.parent.chmod(for_readers(0o777))
        private.mkdir(parents=True, exist_ok=True)
        file = (private / "lock").open("w")
    except OSError as error:
        raise UserError(
            f"{private} cannot be written: {error.strerror}",
            "Correct LAKEHOUSE_EXPORT_ROOT, with an object store LAKEHOUSE_HOME, or the directory's owner",
        ) from None
    with file:
        lock(file, "export")
        directory = private / uuid.uuid4().hex
        try:
            for left_over in private.iterdir():
                if left_over.is_dir():
                    shutil.rmtree(left_over)
            directory.mkdir()
            yield directory
        except OSError as error:
            raise stopped(error, private) from None
        finally:
            shutil.rmtree(directory, ignore_errors=True)


def stopped(error: OSError, path: Path) -> UserError:
    """Return the error of an export's file operation that failed, with a path if the operating system named none."""
    return UserError(
        f"The export stopped: {error.strerror or error} ({error.filename or path})",
        "Readers see whole versions only; repair that and run the export again",
    )


def digest(file: Path) -> str:
    """Return a file's SHA-256."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def root_id(target: Target) -> str:
    """Return a short name of an export root, for keys and tags; of a directory the same by every path to it."""
    address = str(target.root.resolve()) if isinstance(target, LocalTarget) else target.address("").rstrip("/")
    return hashlib.sha256(address.encode()).hexdigest()[:8]


def is_announced(settings: Settings, target: Target, root: str | None) -> bool:
    """Return whether readers are notified of an export root: `root` is LAKEHOUSE_NOTIFY_ROOT, without it they are."""
    return root is None or root_id(open_target(settings.changed(export_root=root))) == root_id(target)
