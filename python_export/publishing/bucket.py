"""A prefix of an S3 bucket; address and keys are boto3's, from the AWS_* variables of the process."""

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

import boto3
from boto3.exceptions import Boto3Error
from botocore.exceptions import BotoCoreError, ClientError

from python_common.errors import UserError

# What is younger than this may be another machine's that is still at work.
ABANDONED_AFTER = timedelta(days=1)
# A bucket answers each read after milliseconds.
READS_AT_ONCE = 8


@dataclass(frozen=True)
class Bucket:
    """Objects under a prefix, the export root of messages."""

    bucket: str
    prefix: str
    client: Any = field(default_factory=lambda: boto3.client("s3"), kw_only=True, compare=False, repr=False)

    @classmethod
    def at(cls, url: str, *more: Any) -> Self:
        """Return the prefix that a URL names; a UserError if the AWS_* variables are wrong."""
        split = urlsplit(url)
        try:
            return cls(split.netloc, split.path.strip("/"), *more)
        except (BotoCoreError, ValueError) as error:
            # A profile that is not there, or an endpoint that is no URL.
            raise cls._unusable(url, str(error)) from None

    def address(self, path: str) -> str:
        """Return the s3:// URL of a path."""
        return f"s3://{self.bucket}/{self._key(path)}"

    def download(self, path: str, file: Path) -> None:
        """Write an object to a file; FileNotFoundError if it is missing."""
        with self._errors():
            self.client.download_file(self.bucket, self._key(path), str(file))

    def delete(self, path: str) -> None:
        """Delete an object, if it is there."""
        self._call("delete_object", Key=self._key(path))

    def empty(self, folder: str) -> None:
        """Delete the objects of a folder."""
        for path, _ in list(self._objects(f"{folder}/")):
            self.delete(path)

    def abort_uploads(self, under: str, of: re.Pattern[str], before: datetime) -> None:
        """Delete the parts of unfinished uploads that began by then, of objects whose whole path matches."""
        for page in self._pages("list_multipart_uploads", under):
            for upload in page.get("Uploads", []):
                if upload["Initiated"] <= before and of.fullmatch(self._path(upload["Key"])):
                    # Its writer, or another machine's clean, may have ended it since it was listed.
                    with self._errors(), suppress(self.client.exceptions.NoSuchUpload):
                        self.client.abort_multipart_upload(
                            Bucket=self.bucket, Key=upload["Key"], UploadId=upload["UploadId"]
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
            if code in {"NoSuchKey", "404"}:
                raise FileNotFoundError(self.address("")) from None
            raise self._unusable(self.address(""), code) from None
        except (BotoCoreError, Boto3Error) as error:
            # boto3 wraps what went wrong with a part of a file.
            cause = getattr(error, "last_exception", None) or error.__context__ or error
            code = cause.response["Error"]["Code"] if isinstance(cause, ClientError) else type(cause).__name__
            raise self._unusable(self.address(""), code) from None

    @staticmethod
    def _unusable(url: str, why: str) -> UserError:
        return UserError(
            f"The export root {url} cannot be used ({why})",
            "Correct LAKEHOUSE_EXPORT_ROOT, AWS_ENDPOINT_URL_S3 or the AWS_* credentials, and run it again",
        )
