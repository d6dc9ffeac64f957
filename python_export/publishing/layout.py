"""What both export targets share: how an export root is laid out, its links, and its clean-up."""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from urllib.parse import quote

MANIFEST = "manifest.json"
LATEST = "latest.json"
REPORTS = "reports"
FEED, INDEX = "versions.json", "index.html"
# Keys of the version before, which releases before 0.7 wrote beside a version.
CHANGES = "changes.csv"
VERSION = re.compile(r"(?P<dataset>\w+)/(?P<week>\d{4}-W\d\d)/v(?P<number>[1-9]\d*)")
# What only this project writes, and what clean-up may delete. Others use a bucket and a directory too.
UPLOAD = re.compile(r"(?P<version>[^/]+/\d{4}-W\d\d/v\d+)/(?P<folder>lakehouse-[0-9a-f]{16})/[^/]+")
UNFINISHED = re.compile(r"\.[^.]+(\.odcs)?\.(json|html|yaml)\.[0-9a-f]{8}")
# What is younger than this may be another machine's that is still at work.
ABANDONED_AFTER = timedelta(days=1)
# A bucket answers each read after milliseconds.
READS_AT_ONCE = 8


class Layout(ABC):
    """An export root; `url` is where it is on the web."""

    url: str

    def link(self, path: str) -> str | None:
        """Return the web address of a path, or None if the root has none."""
        return f"{self.url.rstrip('/')}/{quote(path)}" if self.url else None

    def clean(self, datasets: Iterable[str], abandoned_after: timedelta = ABANDONED_AFTER) -> None:
        """Delete the files of writers that died before they committed them, and complete what was committed."""
        self._clean([f"{name}/" for name in (*datasets, REPORTS)], datetime.now(UTC) - abandoned_after)

    @abstractmethod
    def _clean(self, folders: list[str], limit: datetime) -> None: ...
