"""Where versions go: a local directory, or a prefix of an S3 bucket. Readers see a version as a whole or not at all.

Paths are relative to the export root, `order_lines/2026-W46/v1` for instance. Locally a version is committed by the
rename of its directory, on S3 by its manifest. Of two writers of one version the second gets a FileExistsError.
"""

import errno
import hashlib
import os
import secrets
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import urlsplit

from lakehouse.errors import UserError
from lakehouse.private import for_readers
from lakehouse.settings import Settings
from python_export.files.bucket import ABANDONED_AFTER
from python_export.publishing.layout import MANIFEST, REPORTS, UNFINISHED, VERSION, web_address
from python_export.publishing.s3_target import S3Target
from python_export.publishing.staging import BESIDE_VERSIONS


@dataclass(frozen=True)
class LocalTarget:
    """A directory."""

    root: Path
    url: str = ""

    @property
    def staging(self) -> Path:
        """A directory beside the versions, for a rename works within one file system."""
        return self.root / BESIDE_VERSIONS

    def address(self, path: str) -> str:
        """Return where people find a path."""
        return str(self.root / path)

    def link(self, path: str) -> str | None:
        """Return the web address of a path, or None if the root has none."""
        return web_address(self.url, path)

    def versions(self, under: str = "") -> dict[str, datetime]:
        """Return the versions that readers see, or those under `<dataset>/`, and when each was written or withdrawn.

        Files that others keep under the root are not versions.
        """
        # What other runs have in staging may vanish under a walk.
        return {
            name: datetime.fromtimestamp(path.stat().st_ctime, UTC)
            for path in self.root.glob(f"{under or '[!.]*/'}*/v*")
            if VERSION.fullmatch(name := str(path.relative_to(self.root)))
        }

    def folder(self) -> str:
        """Return the empty string: a version is renamed as a whole, so its files need no folder of their own."""
        return ""

    def add(self, directory: Path, path: str) -> None:
        """Rename the directory into place, synced and read-only; FileExistsError if there is a version."""
        place = self.root / path
        # Before the rename: a process that dies after it must leave a version that readers can open.
        directory.chmod(for_readers(0o755))
        for file in directory.iterdir():
            file.chmod(for_readers(0o444))
            _sync(file)
        _sync(directory)
        self._open(place.parent)
        try:
            directory.rename(place)
        except OSError as error:
            # A directory takes the place of an empty one at most.
            raise FileExistsError(place) if error.errno == errno.ENOTEMPTY else error from None
        # Not before: a directory that must not be written cannot be moved either.
        place.chmod(for_readers(0o555))
        for parent in (place.parent, place.parent.parent, self.root):
            _sync(parent)

    def read(self, path: str) -> bytes:
        """Return the content of a file; FileNotFoundError if there is none."""
        return (self.root / path).read_bytes()

    def fetch(self, path: str, scratch: Path) -> Path:
        """Return the file itself, not a copy; FileNotFoundError if there is none."""
        if not (self.root / path).is_file():
            raise FileNotFoundError(self.root / path)
        return self.root / path

    def put(self, path: str, content: bytes) -> None:
        """Write a file under a hidden name, then rename it over the one that is there."""
        file = self.root / path
        self._open(file.parent)
        unfinished = file.with_name(f".{file.name}.{secrets.token_hex(4)}")
        try:
            unfinished.write_bytes(content)
            unfinished.chmod(for_readers(0o666))
            _sync(unfinished)
            unfinished.rename(file)
        finally:
            unfinished.unlink(missing_ok=True)
        _sync(file.parent)

    def withdraw(self, path: str, manifest: bytes) -> None:
        """Rename the manifest over the one that is there, then delete all other files of the version."""
        place = self.root / path
        place.chmod(0o755)
        unfinished = place / f".{MANIFEST}.{secrets.token_hex(4)}"
        unfinished.write_bytes(manifest)
        unfinished.chmod(for_readers(0o444))
        _sync(unfinished)
        unfinished.rename(place / MANIFEST)
        for file in place.iterdir():
            if file.name != MANIFEST:
                file.unlink()
        _sync(place)
        place.chmod(for_readers(0o555))

    def delete(self, path: str) -> None:
        """Delete a file, if it is there."""
        (self.root / path).unlink(missing_ok=True)

    def _open(self, folder: Path) -> None:
        """Make a folder that readers may enter, and all above it up to the root; repair one that a dead run left."""
        above = [place for place in (folder, *folder.parents) if place == self.root or self.root in place.parents]
        for place in reversed(above):
            # What is there may be a file: that is the error of the rename, not another export's version.
            if is_new := not place.exists():
                place.mkdir(parents=True, exist_ok=True)
            # A root that was there before has the modes that its owner chose.
            if is_new or (place != self.root and place.is_dir() and not place.stat().st_mode & 0o077):
                place.chmod(for_readers(0o777))

    def clean(self, datasets: Iterable[str], abandoned_after: timedelta = ABANDONED_AFTER) -> None:
        """Delete the hidden files of writers that died before their rename; make versions read-only where one died."""
        limit = (datetime.now(UTC) - abandoned_after).timestamp()
        datasets = [*datasets]
        for version in (self.root / path for dataset in datasets for path in self.versions(f"{dataset}/")):
            if version.stat().st_mode & 0o200:
                version.chmod(for_readers(0o555))
        for place in (*datasets, REPORTS):
            for file in (self.root / place).glob(".*"):
                # Its writer may rename it at any time.
                with suppress(FileNotFoundError):
                    if UNFINISHED.fullmatch(file.name) and file.stat().st_mtime <= limit:
                        file.unlink()


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
    return S3Target.at(root, settings.export_staging, settings.export_url)


def digest(file: Path) -> str:
    """Return a file's SHA-256."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def root_id(target: Target) -> str:
    """Return a short name of an export root, for keys and tags; of a directory the same by every path to it."""
    place = str(target.root.resolve()) if isinstance(target, LocalTarget) else target.address("").rstrip("/")
    return hashlib.sha256(place.encode()).hexdigest()[:8]


def is_announced(settings: Settings, target: Target, root: str | None) -> bool:
    """Return whether readers are notified of an export root: `root` is LAKEHOUSE_NOTIFY_ROOT, without it they are."""
    return root is None or root_id(open_target(settings.changed(export_root=root))) == root_id(target)
