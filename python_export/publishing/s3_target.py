"""An export root in a bucket: a version is committed by its manifest, the last object, written only if it is missing.

The files that a manifest names are in a folder of their upload, so that no other upload is in their way.
"""

import json
import secrets
import time
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from itertools import chain
from pathlib import Path

from python_common.errors import UserError
from python_export.publishing.bucket import Bucket
from python_export.publishing.layout import MANIFEST, UPLOAD, VERSION, Layout

# An object that is always there, by which a store shows that it refuses to write it again.
CONDITIONAL = ".lakehouse-conditional-writes"
CONTENT_TYPES = {
    ".csv": "text/csv; charset=utf-8",
    ".json": "application/json",
    ".yaml": "application/yaml",
    ".html": "text/html; charset=utf-8",
    ".gz": "application/gzip",
    ".parquet": "application/vnd.apache.parquet",
    ".xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
}
COMMIT_ATTEMPTS = 5
COMMIT_PAUSE_SECONDS = 1.0


@dataclass(frozen=True)
class S3Target(Layout, Bucket):
    """The export root in a bucket."""

    staging: Path
    url: str = ""

    def versions(self, under: str = "") -> dict[str, datetime]:
        """Return the versions that have a manifest, and when it was written."""
        manifests = ((*path.rpartition("/"), written) for path, written in self._objects(under))
        return {path: written for path, _, name, written in manifests if name == MANIFEST and VERSION.fullmatch(path)}

    def folder(self) -> str:
        """Return a folder with a random name, so that no two uploads write the same object."""
        return f"lakehouse-{secrets.token_hex(8)}/"

    def add(self, directory: Path, path: str) -> None:
        """Upload the files, then the manifest; if there is one, delete the files again and raise FileExistsError."""
        self._require_conditional_writes()
        files = {
            f"{path}/{file.relative_to(directory).as_posix()}": file
            for file in sorted(directory.rglob("*"))
            if file.is_file() and file.name != MANIFEST
        }
        for name, file in files.items():
            with self._errors():
                self.client.upload_file(str(file), self.bucket, self._key(name), ExtraArgs=_content_type(name))
        try:
            self._commit((directory / MANIFEST).read_bytes(), f"{path}/{MANIFEST}")
        except FileExistsError:
            for name in files:
                self.delete(name)
            raise

    def read(self, path: str) -> bytes:
        """Return the content of an object; FileNotFoundError if it is missing."""
        with self._errors():
            return bytes(self._call("get_object", Key=self._key(path))["Body"].read())

    def fetch(self, path: str, scratch: Path) -> Path:
        """Return an object as a file in `scratch`; FileNotFoundError if it is missing."""
        scratch.mkdir(parents=True, exist_ok=True)
        file = scratch / path.replace("/", "_")
        self.download(path, file)
        return file

    def find(self, path: str, name: str) -> list[str]:
        """Return where a version has objects of a name, of any upload."""
        return [path_of_file for path_of_file, _ in self._objects(f"{path}/") if path_of_file.endswith(f"/{name}")]

    def put(self, path: str, content: bytes) -> None:
        """Write an object outside of versions, in the place of one that is there."""
        self._call("put_object", Key=self._key(path), Body=content, **_content_type(path))

    def withdraw(self, path: str, manifest: bytes | None, only: str = "") -> None:
        """Put a manifest, if any, in the place of a version's; delete its other objects, or `only` those of a name."""
        if manifest:
            self.put(f"{path}/{MANIFEST}", manifest)
        for name, _ in list(self._objects(f"{path}/")):
            if name != f"{path}/{MANIFEST}" and only in ("", name.rpartition("/")[2]):
                self.delete(name)

    def remove(self, path: str) -> None:
        """Delete a version, its manifest first: without it readers find no version."""
        self.delete(f"{path}/{MANIFEST}")
        self.empty(path)

    def _clean(self, folders: list[str], limit: datetime) -> None:
        """Delete the objects of old uploads that no manifest names, and the parts of old unfinished ones."""
        uploads: dict[str, dict[str, list[tuple[str, datetime]]]] = {}
        for path, written in chain.from_iterable(map(self._objects, folders)):
            if match := UPLOAD.fullmatch(path):
                uploads.setdefault(match["version"], {}).setdefault(match["folder"], []).append((path, written))
        committed = {version for folder in folders for version in self.versions(folder)}
        for version, objects in uploads.items():
            # The usual version has one upload: its manifest is not read.
            if version in committed and len(objects) == 1:
                continue
            try:
                named = str(json.loads(self.read(f"{version}/{MANIFEST}"))["file"]).partition("/")[0]
            except FileNotFoundError:
                named = None
            except (ValueError, LookupError, TypeError):
                # Its manifest is damaged, and its files must not follow it.
                continue
            for path, written in chain(*(of_upload for upload, of_upload in objects.items() if upload != named)):
                if written <= limit:
                    self.delete(path)
        for folder in folders:
            self.abort_uploads(folder, UPLOAD, limit)

    def _commit(self, content: bytes, path: str) -> None:
        """Write an object if it is missing; FileExistsError if there is another one."""
        for _ in range(COMMIT_ATTEMPTS):
            try:
                self._call("put_object", Key=self._key(path), Body=content, IfNoneMatch="*", **_content_type(path))
                return
            except FileExistsError:
                # The answer to a write may have been lost; boto3 has then asked again, and met the object it wrote.
                if self.read(path) == content:
                    return
                raise
            except BlockingIOError:
                # Another write of the object was going on (409): which of the two is there is known afterwards.
                time.sleep(COMMIT_PAUSE_SECONDS)
        raise UserError(f"Others write {self.address(path)} all the time", "Run the export again")

    def _require_conditional_writes(self) -> None:
        """Raise a UserError if the store would let one writer replace the version of another."""
        mark = {"Key": self._key(CONDITIONAL), "Body": b"", "IfNoneMatch": "*"}
        with suppress(FileExistsError, BlockingIOError):
            # The first one ever is right to be taken.
            for _ in range(2):
                self._call("put_object", **mark)
            raise UserError(
                f"The store of {self.address('')} ignores If-None-Match: an export could replace a version of another",
                "Publish to a store with conditional writes, or to a directory",
            )


def _content_type(path: str) -> dict[str, str]:
    return {"ContentType": CONTENT_TYPES[Path(path).suffix]}
