"""A prefix of an S3 bucket by which a Spark on other machines hands over what it unloads.

Each unload has a folder of its own: Spark writes there by Hadoop's s3a, this process takes the files and deletes it.
"""

import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import ClassVar

from lakehouse.errors import UserError
from python_export.files.bucket import ABANDONED_AFTER, Bucket

# What only this project writes, and what clean-up may delete.
FOLDER = re.compile(r"(lakehouse-unload-[0-9a-f]{16})/.*")
# What Hadoop writes when all parts are there.
COMMITTED = "_SUCCESS"


class UnloadBucket(Bucket):
    """The prefix that LAKEHOUSE_EXPORT_UNLOAD names."""

    what: ClassVar[str] = "The place of unloads"
    variable: ClassVar[str] = "LAKEHOUSE_EXPORT_UNLOAD"

    @contextmanager
    def folder(self) -> Iterator[str]:
        """Yield a folder for one unload; what is in it is deleted afterwards."""
        folder = f"lakehouse-unload-{secrets.token_hex(8)}"
        try:
            yield folder
        except BaseException:
            # What went wrong is told, not that the rest of it cannot be deleted.
            with suppress(UserError):
                self._empty(folder)
            raise
        self._empty(folder)

    def for_spark(self, folder: str) -> str:
        """Return the URL by which Spark knows a folder."""
        return f"s3a://{self.bucket}/{self._key(folder)}"

    def take(self, folder: str, directory: Path) -> None:
        """Download the parts of an unload to a new directory; a UserError if Spark has not committed it there."""
        names = [path.removeprefix(f"{folder}/") for path, _ in self._objects(f"{folder}/")]
        if COMMITTED not in names:
            raise UserError(
                f"Spark left no file under {self.for_spark(folder)}",
                "The Thrift server, its executors and this command must have the same store in AWS_ENDPOINT_URL_S3",
            )
        directory.mkdir()
        for name in names:
            if name.startswith("part-"):
                self.download(f"{folder}/{name}", directory / name)

    def clean(self, abandoned_after: timedelta = ABANDONED_AFTER) -> None:
        """Delete the folders of runs that died: those in which nothing is young."""
        limit = datetime.now(UTC) - abandoned_after
        newest: dict[str, datetime] = {}
        for path, written in self._objects("lakehouse-unload-"):
            if match := FOLDER.fullmatch(path):
                newest[match[1]] = max(written, newest.get(match[1], written))
        for folder, written in newest.items():
            if written <= limit:
                self._empty(folder)
        self.abort_uploads("lakehouse-unload-", FOLDER, limit)

    def _empty(self, folder: str) -> None:
        for path, _ in list(self._objects(f"{folder}/")):
            self.delete(path)
