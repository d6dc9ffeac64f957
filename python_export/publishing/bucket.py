"""An export root in a bucket, or under a prefix of one: address and keys are boto3's, from the AWS_* variables."""

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import Any, Self
from urllib.parse import SplitResult

import boto3
from boto3.exceptions import Boto3Error
from botocore.exceptions import BotoCoreError, ClientError

from python_common.errors import UserError
from python_export.publishing.layout import UPLOAD

CONTENT_TYPES = {
    ".csv": "text/csv; charset=utf-8",
    ".json": "application/json",
    ".yaml": "application/yaml",
    ".html": "text/html; charset=utf-8",
    ".gz": "application/gzip",
    ".parquet": "application/vnd.apache.parquet",
    ".xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    "": "application/octet-stream",
}
COMMIT_ATTEMPTS = 5
COMMIT_PAUSE_SECONDS = 1.0


# What the codes of a store's refusals are in Python.
REFUSALS: dict[str, type[OSError]] = {
    **dict.fromkeys(("PreconditionFailed", "412"), FileExistsError),
    **dict.fromkeys(("ConditionalRequestConflict", "OperationAborted", "409"), BlockingIOError),
    **dict.fromkeys(("NoSuchKey", "NoSuchUpload", "404"), FileNotFoundError),
}


@dataclass(frozen=True)
class Bucket:
    """What is under a prefix of a bucket, which is empty or ends with `/`; others may keep objects there, too."""

    name: str
    prefix: str
    staging: Path
    client: Any = field(compare=False, repr=False)

    @classmethod
    def at(cls, root: SplitResult, staging: Path) -> Self:
        """Return the prefix that a URL names; a UserError if the AWS_* variables are wrong."""
        try:
            client = boto3.client("s3")
        except (BotoCoreError, ValueError) as error:
            # A profile that is not there, or an endpoint that is no URL.
            raise _unusable(root.geturl(), str(error)) from None
        return cls(root.netloc, f"{root.path.strip('/')}/".lstrip("/"), staging, client)

    def address(self, path: str) -> str:
        """Return the s3:// URL of a path."""
        return f"s3://{self.name}/{f'{self.prefix}{path}'.rstrip('/')}"

    def listed(self, under: str, *patterns: str) -> Iterator[tuple[str, datetime]]:
        """Yield the objects whose paths match a pattern after `under`, and when they were written."""
        pattern = re.compile("|".join(re.escape(one).replace(r"\*", "[^/]*") for one in patterns))
        for page in self._pages("list_objects_v2", under):
            for listed in page.get("Contents", []):
                path = listed["Key"].removeprefix(self.prefix)
                if pattern.fullmatch(path, len(under)):
                    yield path, listed["LastModified"]

    def read(self, path: str) -> bytes:
        """Return the content of an object; FileNotFoundError if it is missing."""
        with self._errors():
            return bytes(self._call("get_object", Key=self.prefix + path)["Body"].read())

    def fetch(self, path: str, scratch: Path) -> Path:
        """Return an object as a file in `scratch`; FileNotFoundError if it is missing."""
        scratch.mkdir(parents=True, exist_ok=True)
        file = scratch / path.replace("/", "_")
        with self._errors():
            self.client.download_file(self.name, self.prefix + path, str(file))
        return file

    def put(self, path: str, content: bytes) -> None:
        """Write an object, in the place of one that is there."""
        self._call("put_object", Key=self.prefix + path, Body=content, **_content_type(path))

    def create(self, path: str, content: bytes) -> None:
        """Write an object if it is missing; FileExistsError if there is one."""
        for _ in range(COMMIT_ATTEMPTS):
            # Another write of the object is going on (409): which of the two is there is known afterwards.
            with suppress(BlockingIOError):
                self._call("put_object", Key=self.prefix + path, Body=content, IfNoneMatch="*", **_content_type(path))
                return
            time.sleep(COMMIT_PAUSE_SECONDS)
        raise UserError(f"Others write {self.address(path)} all the time", "Run the export again")

    def upload(self, folder: Path, path: str) -> None:
        """Write the files of a folder as objects under a path."""
        for file in sorted(folder.iterdir()):
            with self._errors():
                key, extra = f"{self.prefix}{path}/{file.name}", _content_type(file.name)
                self.client.upload_file(str(file), self.name, key, ExtraArgs=extra)

    def delete(self, path: str) -> None:
        """Delete an object, if it is there."""
        self._call("delete_object", Key=self.prefix + path)

    def delete_unfinished(self, folders: list[str], limit: datetime) -> None:
        """Delete the parts of uploads in parts that began before `limit` and were not ended."""
        for page in chain.from_iterable(self._pages("list_multipart_uploads", folder) for folder in folders):
            for upload in page.get("Uploads", []):
                if upload["Initiated"] <= limit and UPLOAD.fullmatch(upload["Key"].removeprefix(self.prefix)):
                    # Its writer, or another machine's clean, may have ended it since it was listed.
                    with suppress(FileNotFoundError):
                        self._call("abort_multipart_upload", Key=upload["Key"], UploadId=upload["UploadId"])

    def _pages(self, operation: str, under: str) -> Iterator[dict[str, Any]]:
        with self._errors():
            yield from self.client.get_paginator(operation).paginate(Bucket=self.name, Prefix=self.prefix + under)

    def _call(self, operation: str, **arguments: Any) -> Any:
        with self._errors():
            return getattr(self.client, operation)(Bucket=self.name, **arguments)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Turn refusals into Python's own errors, and everything else into a UserError."""
        try:
            yield
        except (ClientError, BotoCoreError, Boto3Error) as error:
            # boto3 wraps what went wrong with a part of a file.
            wrapped = getattr(error, "last_exception", None) or error.__context__ or error
            cause = error if isinstance(error, ClientError) else wrapped
            code = cause.response["Error"]["Code"] if isinstance(cause, ClientError) else type(cause).__name__
            if code in REFUSALS:
                raise REFUSALS[code](self.address("")) from None
            raise _unusable(self.address(""), code) from None


def _unusable(url: str, why: str) -> UserError:
    return UserError(
        f"The export root {url} cannot be used ({why})",
        "Correct LAKEHOUSE_EXPORT_ROOT, AWS_ENDPOINT_URL_S3 or the AWS_* credentials, and run it again",
    )


def _content_type(path: str) -> dict[str, str]:
    return {"ContentType": CONTENT_TYPES[PurePosixPath(path).suffix]}
