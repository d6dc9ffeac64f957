"""An export root in a directory or a bucket. Readers see a version as a whole or not at all.

Paths are relative to the root, `order_lines/2026-W46/v1` for instance. The files of a version are in a folder of their
upload, so that no other upload is in their way. The manifest, which names them, is written last and only if it is
missing: that commits the version. Of two writers of one version the second gets a FileExistsError.
"""

import hashlib
import json
import shutil
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import chain
from pathlib import Path
from urllib.parse import quote, urlsplit

from python_common.config.settings import Settings
from python_common.errors import UserError
from python_common.locks.lock import lock
from python_common.private_files import for_readers
from python_export.publishing.bucket import Bucket
from python_export.publishing.directory import STAGING, Directory
from python_export.publishing.layout import ABANDONED_AFTER, CONDITIONAL, MANIFEST, REPORTS, UPLOAD, VERSION


@dataclass(frozen=True)
class Target:
    """An export root in a store; `url` is where it is on the web."""

    store: Directory | Bucket
    url: str = ""

    @property
    def staging(self) -> Path:
        """The directory in which a run writes what it will publish."""
        return self.store.staging

    def address(self, path: str) -> str:
        """Return where people find a path: a local path, or an s3:// URL."""
        return self.store.address(path)

    def link(self, path: str) -> str | None:
        """Return the web address of a path, or None if the root has none."""
        return f"{self.url.rstrip('/')}/{quote(path)}" if self.url else None

    def versions(self, under: str = "") -> list[str]:
        """Return the versions that have a manifest, or those under `<dataset>/`.

        Files that others keep under the root are not versions.
        """
        manifests = self.store.listed(under, f"{'' if under else '*/'}*/v*/{MANIFEST}")
        folders = [path.rpartition("/")[0] for path, _ in manifests]
        return [folder for folder in folders if VERSION.fullmatch(folder)]

    def files(self, path: str) -> list[str]:
        """Return the files of a version, of any upload, or those of another folder."""
        return [file for file, _ in self.store.listed(f"{path}/", "*", "*/*")]

    def read(self, path: str) -> bytes:
        """Return the content of a file; FileNotFoundError if it is missing."""
        return self.store.read(path)

    def fetch(self, path: str, scratch: Path) -> Path:
        """Return a file, or its copy in `scratch`; FileNotFoundError if it is missing."""
        return self.store.fetch(path, scratch)

    def put(self, path: str, content: bytes) -> None:
        """Write a file, in the place of one that is there."""
        self.store.put(path, content)

    def delete(self, path: str) -> None:
        """Delete a file, if it is there."""
        self.store.delete(path)

    def add(self, folder: Path, path: str, manifest: bytes) -> None:
        """Upload the files of a folder, which may be moved, then write the manifest of their version.

        Raises:
            FileExistsError: there is another manifest; the files are deleted again.
            UserError: the store cannot refuse to write a file again.
        """
        self._require_conditional_writes()
        self.store.upload(folder, f"{path}/{folder.name}")
        try:
            self.store.create(f"{path}/{MANIFEST}", manifest)
        except FileExistsError:
            # The answer to a write may have been lost: boto3, or NFS, has then asked again, and met what it wrote.
            if self.read(f"{path}/{MANIFEST}") == manifest:
                return
            for file in self.files(f"{path}/{folder.name}"):
                self.delete(file)
            raise

    def remove(self, path: str) -> None:
        """Delete a version: its manifest first, because without it readers find no version.

        Files beside the manifest, where releases before 0.7 had them in directories, go before it: nothing else would
        find them after a removal that was cut off.
        """
        files = self.files(path)
        for file in sorted(files, key=lambda file: (UPLOAD.fullmatch(file) is not None, file.endswith(f"/{MANIFEST}"))):
            self.delete(file)

    def clean(self, datasets: Iterable[str], abandoned_after: timedelta = ABANDONED_AFTER) -> None:
        """Delete the files of writers that died before they committed them, and nothing else."""
        limit = datetime.now(UTC) - abandoned_after
        folders = [f"{name}/" for name in (*datasets, REPORTS)]
        for folder in folders:
            uploads: dict[str, dict[str, list[tuple[str, datetime]]]] = {}
            for path, written in self.store.listed(folder, "*/v*/*/*"):
                if match := UPLOAD.fullmatch(path):
                    uploads.setdefault(match["version"], {}).setdefault(match["folder"], []).append((path, written))
            committed = {*self.versions(folder)}
            for version, files in uploads.items():
                # The usual version has one upload: its manifest is not read.
                if version in committed and len(files) == 1:
                    continue
                try:
                    named = str(json.loads(self.read(f"{version}/{MANIFEST}"))["file"]).partition("/")[0]
                except FileNotFoundError:
                    named = None
                except (OSError, ValueError, LookupError, TypeError):
                    # Its manifest is damaged, and its files must not follow it.
                    continue
                for path, written in chain(*(of_upload for upload, of_upload in files.items() if upload != named)):
                    if written <= limit:
                        self.delete(path)
        self.store.delete_unfinished(folders, limit)

    def _require_conditional_writes(self) -> None:
        """Raise a UserError if the store would let one writer replace the version of another."""
        with suppress(FileExistsError):
            # The first one ever is right to be taken.
            for _ in range(2):
                self.store.create(CONDITIONAL, b"")
            raise UserError(
                f"The store of {self.address('')} ignores If-None-Match: an export could replace a version of another",
                "Publish to a store with conditional writes, or to a directory",
            )


def open_target(settings: Settings) -> Target:
    """Return the target that LAKEHOUSE_EXPORT_ROOT names.

    Raises:
        UserError: it is not set, is a URL, but not one of a bucket, or the AWS_* variables are wrong.
    """
    root = settings.needed("export_root")
    if "://" not in root:
        return Target(Directory(Path(root).absolute()), settings.export_url)
    url = urlsplit(root)
    if url.scheme != "s3" or not url.netloc:
        raise UserError(
            f"LAKEHOUSE_EXPORT_ROOT is {root}", "Give a local directory or an address like s3://bucket/prefix"
        )
    return Target(Bucket.at(url, settings.export_staging), settings.export_url)


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
    store = target.store
    address = str(store.root.resolve()) if isinstance(store, Directory) else store.address("").rstrip("/")
    return hashlib.sha256(address.encode()).hexdigest()[:8]


def is_announced(settings: Settings, target: Target, root: str | None) -> bool:
    """Return whether readers are notified of an export root: `root` is LAKEHOUSE_NOTIFY_ROOT, without it they are."""
    return root is None or root_id(open_target(settings.changed(export_root=root))) == root_id(target)
