"""An export root in a bucket: a version is committed by its manifest, the last object, written only if there is none.

The files that a manifest names are in a folder of their upload, so that no other upload is in their way.
"""

import json
import secrets
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import chain
from pathlib import Path
from typing import Any

import boto3
from boto3.exceptions import Boto3Error
from botocore.exceptions import BotoCoreError, ClientError

from lakehouse.errors import UserError
from python_export.publishing.layout import ABANDONED_AFTER, MANIFEST, UPLOAD, web_address

# The folder of a version whose manifest does not tell.
UNKNOWN = ""
# An object that is always there, by which a store shows that it refuses to write it again.
CONDITIONAL = ".lakehouse-conditional-writes"
CONTENT_TYPES = {
    ".csv": "text/csv; charset=utf-8",
    ".json": "application/json",
    ".html": "text/html; charset=utf-8",
}
COMMIT_ATTEMPTS = 5
COMMIT_PAUSE_SECONDS = 1.0


@dataclass(frozen=True)
class S3Target:
    """A prefix of a bucket; address and credentials are boto3's, from the AWS_* variables of the process."""

    bucket: str
    prefix: str
    staging: Path
    url: str = ""
    client: Any = field(default_factory=lambda: boto3.client("s3"), compare=False, repr=False)

    def address(self, path: str) -> str:
        """Return the s3:// URL of a path."""
        return f"s3://{self.bucket}/{self._key(path)}"

    def link(self, path: str) -> str | None:
        """Return the web address of a path, or None if the root has none."""
        return web_address(self.url, path)

    def versions(self, under: str = "") -> dict[str, datetime]:
        """Return the versions that have a manifest, and when it was written."""
        suffix = f"/{MANIFEST}"
        return {path.removesuffix(suffix): written for path, written in self._objects(under) if path.endswith(suffix)}

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
                self._call("delete_object", Key=self._key(name))
            raise

    def read(self, path: str) -> bytes:
        """Return the content of an object; FileNotFoundError if there is none."""
        with self._errors():
            return bytes(self._call("get_object", Key=self._key(path))["Body"].read())

    def fetch(self, path: str, scratch: Path) -> Path:
        """Return an object as a file in `scratch`; FileNotFoundError if there is none."""
        scratch.mkdir(parents=True, exist_ok=True)
        file = scratch / path.replace("/", "_")
        with self._errors():
            self.client.download_file(self.bucket, self._key(path), str(file))
        return file

    def put(self, path: str, content: bytes) -> None:
        """Write an object outside of versions, in the place of one that is there."""
        self._call("put_object", Key=self._key(path), Body=content, **_content_type(path))

    def withdraw(self, path: str, manifest: bytes) -> None:
        """Put a manifest in the place of a version's, and delete all its other objects."""
        self.put(f"{path}/{MANIFEST}", manifest)
        for listed, _ in list(self._objects(f"{path}/")):
            if listed != f"{path}/{MANIFEST}":
                self.delete(listed)

    def delete(self, path: str) -> None:
        """Delete an object, if it is there."""
        self._call("delete_object", Key=self._key(path))

    def clean(self, datasets: Iterable[str], abandoned_after: timedelta = ABANDONED_AFTER) -> None:
        """Delete the objects of old uploads that no manifest names, and the parts of old unfinished ones."""
        limit = datetime.now(UTC) - abandoned_after
        for dataset in datasets:
            uploads: dict[str, dict[str, list[tuple[str, datetime]]]] = {}
            for path, written in self._objects(f"{dataset}/"):
                if match := UPLOAD.fullmatch(path):
                    uploads.setdefault(match["version"], {}).setdefault(match["folder"], []).append((path, written))
            committed = {*self.versions(f"{dataset}/")}
            for version, folders in uploads.items():
                # The usual version has one upload, its own. Only beside another one its manifest has to be read.
                if version in committed and len(folders) == 1:
                    continue
                kept = self._folder_of(version)
                abandoned = [objects for folder, objects in folders.items() if UNKNOWN != kept != folder]
                for path, written in chain(*abandoned):
                    if written <= limit:
                        self._call("delete_object", Key=self._key(path))
            for page in self._pages("list_multipart_uploads", f"{dataset}/"):
                for upload in page.get("Uploads", []):
                    if upload["Initiated"] <= limit and UPLOAD.fullmatch(self._path(upload["Key"])):
                        self._abort(upload["Key"], upload["UploadId"])

    def _folder_of(self, version: str) -> str | None:
        """Return the folder of a version's files, or None without a manifest."""
        try:
            return str(json.loads(self.read(f"{version}/{MANIFEST}"))["file"]).partition("/")[0]
        except FileNotFoundError:
            return None
        except (ValueError, LookupError, TypeError):
            # It is damaged, and its files are not to follow it.
            return UNKNOWN

    def _abort(self, key: str, upload_id: str) -> None:
        # Its writer, or another machine's clean, may have ended it since it was listed.
        with self._errors(), suppress(self.client.exceptions.NoSuchUpload):
            self.client.abort_multipart_upload(Bucket=self.bucket, Key=key, UploadId=upload_id)

    def _commit(self, content: bytes, path: str) -> None:
        """Write an object if there is none; FileExistsError if there is another one."""
        for _ in range(COMMIT_ATTEMPTS):
            try:
                self._call("put_object", Key=self._key(path), Body=content, IfNoneMatch="*", **_content_type(path))
                return
            except FileExistsError:
                # The answer to a write may have been lost; boto3 has then asked again, and met its own object.
                if self.read(path) == content:
                    return
                raise
            except BlockingIOError:
                # Another write of the object was going on (409): which of the two is there is known afterwards.
                time.sleep(COMMIT_PAUSE_SECONDS)
        raise UserError(f"Others write {self.address(path)} all the time", "Run the export again")

    def _require_conditional_writes(self) -> None:
        """Raise if the store would let one writer replace the version of another.

        Raises:
            UserError: it takes a write that it was asked to refuse.
        """
        mark = {"Key": self._key(CONDITIONAL), "Body": b"", "IfNoneMatch": "*"}
        with suppress(FileExistsError, BlockingIOError):
            # The first one ever is right to be taken.
            for _ in range(2):
                self._call("put_object", **mark)
            raise UserError(
                f"The store of {self.address('')} ignores If-None-Match: an export could replace a version of another",
                "Publish to a store with conditional writes, or to a directory",
            )

    def _key(self, path: str) -> str:
        return f"{self.prefix}/{path}".lstrip("/") if path else self.prefix

    def _path(self, key: str) -> str:
        return key.removeprefix(f"{self.prefix}/") if self.prefix else key

    def _objects(self, under: str = "") -> Iterator[tuple[str, datetime]]:
        """Yield path and time of every object."""
        for page in self._pages("list_objects_v2", under):
            for listed in page.get("Contents", []):
                yield self._path(listed["Key"]), listed["LastModified"]

    def _pages(self, operation: str, under: str) -> Iterator[dict[str, Any]]:
        prefix = f"{self.prefix}/{under}" if self.prefix else under
        with self._errors():
            yield from self.client.get_paginator(operation).paginate(Bucket=self.bucket, Prefix=prefix)

    def _call(self, operation: str, **arguments: Any) -> Any:
        with self._errors():
            return getattr(self.client, operation)(Bucket=self.bucket, **arguments)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Turn refusals into Python's own errors, and everything else into a line.

        Raises:
            UserError: the store does not answer, or does not know or admit this client.
        """
        try:
            yield
        except ClientError as error:
            code = error.response["Error"]["Code"]
            if code in {"PreconditionFailed", "412"}:
                raise FileExistsError(self.address("")) from None
            if code in {"ConditionalRequestConflict", "OperationAborted", "409"}:
                raise BlockingIOError(self.address("")) from None
            if code in {"NoSuchKey", "404"}:
                raise FileNotFoundError(self.address("")) from None
            raise unusable(self.address(""), code) from None
        except (BotoCoreError, Boto3Error) as error:
            # boto3 wraps what went wrong with a part of a file.
            cause = getattr(error, "last_exception", None) or error.__context__ or error
            raise unusable(self.address(""), type(cause).__name__) from None


def _content_type(path: str) -> dict[str, str]:
    return {"ContentType": CONTENT_TYPES[Path(path).suffix]}


def unusable(root: str, why: str) -> UserError:
    """Return what to say of an export root that cannot be used; `why` stands in the message."""
    return UserError(
        f"The export root {root} cannot be used ({why})",
        "Correct LAKEHOUSE_EXPORT_ROOT, AWS_ENDPOINT_URL_S3 or the AWS_* credentials, and run it again",
    )
