"""How an export root is laid out: the names of what is in it, and of what a dead export may have left there."""

import re
from urllib.parse import quote

MANIFEST = "manifest.json"
REPORTS = "reports"
VERSION = re.compile(r"(?P<dataset>\w+)/(?P<week>\d{4}-W\d\d)/v(?P<number>[1-9]\d*)")
# What only this project writes, and what clean-up may delete. Others use a bucket and a directory too.
UPLOAD = re.compile(r"(?P<version>[^/]+/\d{4}-W\d\d/v\d+)/(?P<folder>lakehouse-[0-9a-f]{16})/[^/]+")
UNFINISHED = re.compile(r"\.[^.]+\.(json|html)\.[0-9a-f]{8}")


def web_address(url: str, path: str) -> str | None:
    """Return where a path under the export root is on the web, if `url` says where the root is."""
    return f"{url.rstrip('/')}/{quote(path)}" if url else None
