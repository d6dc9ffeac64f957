"""Takes a published version back: its files are deleted, and its manifest says when that was and why."""

from dataclasses import replace
from datetime import UTC, datetime

from python_export.publishing.manifest import Withdrawn, read
from python_export.publishing.publish import point_to_newest
from python_export.publishing.target import Target


def withdraw(target: Target, path: str, reason: str) -> None:
    """Withdraw the version at a path; done again, it completes what was cut off.

    What its manifest says of the file's values goes with the file. Readers find the newest version that is left.

    Raises:
        ManifestError: the manifest cannot be read.
    """
    manifest = read(target, path)
    if not manifest.withdrawn:
        said = Withdrawn(on=f"{datetime.now(UTC):%Y-%m-%d}", reason=reason)
        manifest = replace(manifest, withdrawn=said, control_totals={}, totals_by={})
    target.withdraw(path, manifest.text().encode())
    point_to_newest(target, manifest.dataset)
