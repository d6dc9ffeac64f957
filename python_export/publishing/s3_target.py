"""An export root in a bucket: a version is committed by its manifest, the last object, written only if it is missing.

The files that a manifest names are in a folder of their upload, so that no other upload is in their way. Address and
keys are boto3's, from the AWS_* variables of the process.
"""

import json
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from itertools import chain
from pathlib import Path
from typing import Any, Self
from urllib.parse import SplitResult

import boto3
from boto3.exceptions import Boto3Error
from botocore.exceptions import BotoCoreError, ClientError

from python_common.errors import UserError
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
class S3Target(Layout):
    """A prefix of a bucket."""

    bucket: str
    prefix: str
    staging: Path
    url: str
    client: Any = field(compare=False, repr=False)

    @classmethod
    def at(cls, root: SplitResult, staging: Path, url: str) -> Self:
        """Return the prefix that a URL names; a UserError if the AWS_* variables are wrong."""
        try:
            client = boto3.client("s3")
        except (BotoCoreError, ValueError) as error:
            # A profile that is not there, or an endpoint that is no URL.
            raise _unusable(root.geturl(), str(error)) from None
        return cls(root.netloc, root.path.strip("/"), staging, url, client)

    def address(self, path: str) -> str:
        """Return the s3:// URL of a path."""
        return f"s3://{self.bucket}/{self._key(path)}"

    def versions(self, under: str = "") -> list[str]:
        """Return the versions that have a manifest."""
        files = (path.rpartition("/") for path, _ in self._objects(under))
        return [path for path, _, name in files if name == MANIFEST and VERSION.fullmatch(path)]

    def files(self, path: str) -> list[str]:
        """Return the objects of a version, of any upload, or of another directory."""
        return [file for file, _ in self._objects(f"{path}/")]

    def read(self, path: str) -> bytes:
        """Return the content of an object; FileNotFoundError if it is missing."""
        with self._errors():
            return bytes(self._call("get_object", Key=self._key(path))["Body"].read())

    def fetch(self, path: str, scratch: Path) -> Path:
        """Return an object as a file in `scratch`; FileNotFoundError if it is missing."""
        scratch.mkdir(parents=True, exist_ok=True)
        file = scratch / path.replace("/", "_")
        with self._errors():
            self.client.download_file(self.bucket, self._key(path), str(file))
        return file

    def put(self, path: str, content: bytes) -> None:
        """Write an object, in the place of one that is there."""
        self._call("put_object", Key=self._key(path), Body=content, **_content_type(path))

    def delete(self, path: str) -> None:
        """Delete an object, if it is there."""
        self._call("delete_object", Key=self._key(path))

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

    def remove(self, path: str) -> None:
        """Delete a version, its manifest first: without it readers find no version."""
        self.delete(f"{path}/{MANIFEST}")
        for file in self.files(path):
            self.delete(file)

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
        for page in chain.from_iterable(self._pages("list_multipart_uploads", folder) for folder in folders):
            for upload in page.get("Uploads", []):
                if upload["Initiated"] <= limit and UPLOAD.fullmatch(self._path(upload["Key"])):
                    # Its writer, or another machine's clean, may have ended it since it was listed.
                    with suppress(FileNotFoundError):
                        self._call("abort_multipart_upload", Key=upload["Key"], UploadId=upload["UploadId"])

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
        with suppress(FileExistsError, BlockingIOError):
            # The first one ever is right to be taken.
            for _ in range(2):
                self._call("put_object", Key=self._key(CONDITIONAL), Body=b"", IfNoneMatch="*")
            raise UserError(
                f"The store of {self.address('')} ignores If-None-Match: an export could replace a version of another",
                "Publish to a store with conditional writes, or to a directory",
            )

    def _key(self, path: str) -> str:
        return f"{self.prefix}/{path}".lstrip("/") if path else self.prefix

    def _path(self, key: str) -> str:
        return key.removeprefix(f"{self.prefix}/") if self.prefix else key

    def _objects(self, under: str = "") -> Iterator[tuple[str, datetime]]:
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
        """Turn refusals into Python's own errors, and everything else into a UserError."""
        try:
            yield
        except ClientError as error:
            code = error.response["Error"]["Code"]
            if code in {"PreconditionFailed", "412"}:
                raise FileExistsError(self.address("")) from None
            if code in {"ConditionalRequestConflict", "OperationAborted", "409"}:
                raise BlockingIOError(self.address("")) from None
            if code in {"NoSuchKey", "NoSuchUpload", "404"}:
                raise FileNotFoundError(self.address("")) from None
            raise _unusable(self.address(""), code) from None
        except (BotoCoreError, Boto3Error) as error:
            # boto3 wraps what went wrong with a part of a file.
            cause = getattr(error, "last_exception", None) or error.__context__ or error
            code = cause.response["Error"]["Code"] if isinstance(cause, ClientError) else type(cause).__name__
            raise _unusable(self.address(""), code) from None


def _unusable(url: str, why: str) -> UserError:
    return UserError(
        f"The export root {url} cannot be used ({why})",
        "Correct LAKEHOUSE_EXPORT_ROOT, AWS_ENDPOINT_URL_S3 or the AWS_* credentials, and run it again",
    )


def _content_type(path: str) -> dict[str, str]:
    return {"ContentType": CONTENT_TYPES[Path(path).suffix]}
