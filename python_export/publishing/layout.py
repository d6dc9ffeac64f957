"""Where things are under an export root, and how long a writer may be at work."""

import re
import secrets
from datetime import timedelta

MANIFEST = "manifest.json"
LATEST = "latest.json"
REPORTS = "reports"
FEED, INDEX = "versions.json", "index.html"
# A file that is always there, by which a store shows that it refuses to write it again.
CONDITIONAL = ".lakehouse-conditional-writes"
# Keys of the version before, which releases before 0.7 wrote beside a version.
CHANGES = "changes.csv"
VERSION = re.compile(r"(?P<dataset>\w+)/(?P<week>\d{4}-W\d\d)/v(?P<number>[1-9]\d*)")
# What only this project writes, and what clean-up may delete. Others use a bucket and a directory too.
UPLOAD = re.compile(r"(?P<version>[^/]+/\d{4}-W\d\d/v\d+)/(?P<folder>lakehouse-[0-9a-f]{16})/[^/]+")
# What is younger than this may be another machine's that is still at work.
ABANDONED_AFTER = timedelta(days=1)
# A bucket answers each read after milliseconds.
READS_AT_ONCE = 8


def upload_folder() -> str:
    """Return the name of a folder for an upload, random so that no two uploads write the same file."""
    return f"lakehouse-{secrets.token_hex(8)}"
