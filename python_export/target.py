"""Where versions go: a local directory, or a prefix of an S3 bucket. Readers see a version as a whole or not at all.

Paths are relative to the export root, `order_lines/2026-W46/v1` for instance. Locally a version is committed by the
rename of its directory, on S3 by its manifest, the last object, written only if there is none. Of two writers of one
version the second gets a FileExistsError.
"""

import errno
import hashlib
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

import boto3
from botocore.exceptions import BotoCoreError, ClientError

from lakehouse.errors import UserError
from lakehouse.settings import Settings

MANIFEST = "manifest.json"
# Where a version is, and what may have been left beside it. Nothing else is deleted: others use a bucket too.
VERSION = re.compile(r"(?P<dataset>[^/]+)/(?P<week>\d{4}-W\d\d)/v(?P<number>\d+)")
UNFINISHED = re.compile(r"\.[^.]+\.(json|html)\.[0-9a-f]{8}")
PART_BYTES = 64 * 1024 * 1024
# What is younger than this may be another machine's that is still at work, or carries on what a dead one has left.
ABANDONED_AFTER = timedelta(days=1)


class Target(Protocol):
    """An export root. `staging` is a local directory that the Thrift server sees too, for files on their way."""

    staging: Path

    def address(self, path: str) -> str:
        """Return where people find a path: a file name or a URL."""

    def versions(self) -> list[str]:
        """Return the paths of all versions that readers see, in no particular order."""

    def add(self, directory: Path, path: str) -> None:
        """Make a local directory with a manifest visible as a version; FileExistsError if there is one."""

    def read(self, path: str) -> bytes:
        """Return the content of a file; FileNotFoundError if there is none."""

    def fetch(self, path: str, scratch: Path) -> Path:
        """Return a file as a local one, in `scratch` if it is remote; FileNotFoundError if there is none."""

    def put(self, path: str, content: bytes) -> None:
        """Write a file outside of versions at once, in the place of one that is there."""

    def clean(self, abandoned_after: timedelta = ABANDONED_AFTER) -> None:
        """Delete what writers that died have left, where that is not in `staging`."""


def open_target(settings: Settings) -> Target:
    """Return the target that LAKEHOUSE_EXPORT_ROOT names.

    Raises:
        UserError: it is a URL, but not one of a bucket, or the AWS_* variables are wrong.
    """
    root = settings.export_root
    if "://" not in root:
        return LocalTarget(Path(root).absolute())
    url = urlsplit(root)
    if url.scheme != "s3" or not url.netloc:
        raise UserError(
            f"LAKEHOUSE_EXPORT_ROOT is {root}", "Give a local directory or an address like s3://bucket/prefix"
        )
    try:
        return S3Target(url.netloc, url.path.strip("/"), settings.export_staging)
    except (BotoCoreError, ValueError) as error:
        # A profile that is not there, or an endpoint that is no URL.
        raise _unusable(root, str(error)) from None


@dataclass(frozen=True)
class LocalTarget:
    """A directory."""

    root: Path

    @property
    def staging(self) -> Path:
        # A rename works within one file system.
        return self.root / ".staging"

    def address(self, path: str) -> str:
        return str(self.root / path)

    def versions(self) -> list[str]:
        # What other runs have in staging may vanish under a walk.
        return [str(path.relative_to(self.root)) for path in self.root.glob("[!.]*/*/v*")]

    def add(self, directory: Path, path: str) -> None:
        place = self.root / path
        for file in directory.iterdir():
            _sync(file)
        _sync(directory)
        place.parent.mkdir(parents=True, exist_ok=True)
        try:
            directory.rename(place)
        except OSError as error:
            # A directory takes the place of an empty one at most.
            raise FileExistsError(place) if error.errno == errno.ENOTEMPTY else error from None
        for parent in (place.parent, place.parent.parent, self.root):
            _sync(parent)

    def read(self, path: str) -> bytes:
        return (self.root / path).read_bytes()

    def fetch(self, path: str, scratch: Path) -> Path:
        if not (self.root / path).is_file():
            raise FileNotFoundError(self.root / path)
        return self.root / path

    def put(self, path: str, content: bytes) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        unfinished = file.with_name(f".{file.name}.{secrets.token_hex(4)}")
        try:
            unfinished.write_bytes(content)
            _sync(unfinished)
            unfinished.rename(file)
        finally:
            unfinished.unlink(missing_ok=True)
        _sync(file.parent)

    def clean(self, abandoned_after: timedelta = ABANDONED_AFTER) -> None:
        limit = (datetime.now(UTC) - abandoned_after).timestamp()
        for file in self.root.glob("[!.]*/.*"):
            # Its writer may rename it at any time.
            with suppress(FileNotFoundError):
                if UNFINISHED.fullmatch(file.name) and file.stat().st_mtime <= limit:
                    file.unlink()


@dataclass(frozen=True)
class S3Target:
    """A prefix of a bucket; address and credentials are boto3's, from the AWS_* variables of the process."""

    bucket: str
    prefix: str
    staging: Path
    client: Any = field(default_factory=lambda: boto3.client("s3"), compare=False, repr=False)

    def address(self, path: str) -> str:
        return f"s3://{self.bucket}/{self._key(path)}"

    def versions(self) -> list[str]:
        return [path.removesuffix(f"/{MANIFEST}") for path, _ in self._objects() if path.endswith(f"/{MANIFEST}")]

    def add(self, directory: Path, path: str) -> None:
        for file in sorted(directory.iterdir()):
            if file.name != MANIFEST:
                self._write_or_find(file, f"{path}/{file.name}")
        self._write(directory / MANIFEST, f"{path}/{MANIFEST}")

    def read(self, path: str) -> bytes:
        with self._errors():
            return self._call("get_object", Key=self._key(path))["Body"].read()

    def fetch(self, path: str, scratch: Path) -> Path:
        body = self._call("get_object", Key=self._key(path))["Body"]
        file = scratch / path.replace("/", "_")
        with file.open("wb") as local, self._errors():
            for chunk in body.iter_chunks(PART_BYTES):
                local.write(chunk)
        return file

    def put(self, path: str, content: bytes) -> None:
        self._call("put_object", Key=self._key(path), Body=content)

    def clean(self, abandoned_after: timedelta = ABANDONED_AFTER) -> None:
        limit = datetime.now(UTC) - abandoned_after
        # Before the manifests: a version that is committed in between is one that is seen.
        old = [path for path, written in self._objects() if written <= limit and _version(path)]
        visible = {*self.versions()}
        for path in old:
            if _version(path) not in visible:
                self._call("delete_object", Key=self._key(path))
        for page in self._pages("list_multipart_uploads"):
            for upload in page.get("Uploads", []):
                if upload["Initiated"] <= limit and _version(self._path(upload["Key"])):
                    self._abort(upload["Key"], upload["UploadId"])

    def _abort(self, key: str, upload_id: str) -> None:
        # Its writer, or another machine's clean, may have ended it since it was listed.
        with self._errors(), suppress(self.client.exceptions.NoSuchUpload):
            self.client.abort_multipart_upload(Bucket=self.bucket, Key=key, UploadId=upload_id)

    def _write_or_find(self, file: Path, path: str) -> None:
        """Write an object; the same content from a run that died before its manifest will do."""
        try:
            self._write(file, path)
        except FileExistsError:
            if self._call("head_object", Key=self._key(path))["Metadata"].get("sha256") != digest(file):
                raise

    def _write(self, file: Path, path: str) -> None:
        """Write an object that must not exist yet; its digest is kept with it."""
        with file.open("rb") as stream:
            wanted = {"Key": self._key(path), "Metadata": {"sha256": digest(file)}}
            if file.stat().st_size <= PART_BYTES:
                self._call("put_object", **wanted, Body=stream, IfNoneMatch="*")
                return
            upload = self._call("create_multipart_upload", **wanted)
            one = {"Key": upload["Key"], "UploadId": upload["UploadId"]}
            parts = [
                {"PartNumber": number, "ETag": self._call("upload_part", **one, PartNumber=number, Body=part)["ETag"]}
                for number, part in enumerate(iter(lambda: stream.read(PART_BYTES), b""), start=1)
            ]
            self._call("complete_multipart_upload", **one, MultipartUpload={"Parts": parts}, IfNoneMatch="*")

    def _key(self, path: str) -> str:
        return f"{self.prefix}/{path}".strip("/")

    def _path(self, key: str) -> str:
        return key.removeprefix(f"{self.prefix}/") if self.prefix else key

    def _objects(self) -> Iterator[tuple[str, datetime]]:
        """Yield path and time of every object."""
        for page in self._pages("list_objects_v2"):
            for each in page.get("Contents", []):
                yield self._path(each["Key"]), each["LastModified"]

    def _pages(self, operation: str) -> Iterator[dict[str, Any]]:
        prefix = f"{self.prefix}/" if self.prefix else ""
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
            if code in {"PreconditionFailed", "ConditionalRequestConflict"}:
                raise FileExistsError(self.address("")) from None
            if code in {"NoSuchKey", "404"}:
                raise FileNotFoundError(self.address("")) from None
            raise _unusable(self.address(""), code) from None
        except BotoCoreError as error:
            raise _unusable(self.address(""), type(error).__name__) from None


def _unusable(root: str, why: str) -> UserError:
    return UserError(
        f"The export root {root} cannot be used ({why})",
        "Correct LAKEHOUSE_EXPORT_ROOT, AWS_ENDPOINT_URL_S3 or the AWS_* credentials, and run it again",
    )


def _version(path: str) -> str | None:
    """Return the version that a file is of, if it is of one."""
    version = path.rpartition("/")[0]
    return version if VERSION.fullmatch(version) else None


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
