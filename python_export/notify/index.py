"""Writes versions.json for programs and index.html for people: the current versions of all datasets of an export root.

They and each latest.json are functions of the manifests, so a run repairs what a dead one has left, and `export verify`
can compare them.
"""

import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from itertools import chain

from python_export.notify.messages import TEMPLATES
from python_export.publishing.audit import CheckResult
from python_export.publishing.layout import FEED, INDEX, LATEST, READS_AT_ONCE
from python_export.publishing.manifest import Manifest, outdated, paths, readable
from python_export.publishing.publish import point_to_newest, pointer
from python_export.publishing.target import Target

# Raised when a field of the feed gets another meaning; a new field alone does not.
FORMAT = 1


def write(target: Target) -> list[Manifest]:
    """Write the files that differ from what is published; return the listed manifests."""
    listed = current(target)
    for path, content in _files(target, listed).items():
        if _content(target, path) == content:
            continue
        if path in (FEED, INDEX):
            target.put(path, content)
        else:
            point_to_newest(target, path.partition("/")[0])
    return listed


def audit(target: Target) -> list[CheckResult]:
    """Verify that the files, and the pointer of each dataset, list what is published."""
    issue = "it is missing or does not list what is published; the next export writes it again"
    files = _files(target, current(target))
    return [CheckResult(path, () if _content(target, path) == right else (issue,)) for path, right in files.items()]


def current(target: Target) -> list[Manifest]:
    """Return each week's current version, after the withdrawn ones that are newer; by dataset, the newest week first.

    Older manifests are not read.
    """
    by_week: dict[str, list[str]] = {}
    for path in reversed(paths(target)):
        by_week.setdefault(path.rpartition("/")[0], []).append(path)

    def newest(versions: list[str]) -> list[Manifest]:
        manifests = []
        for manifest in readable(target, versions):
            manifests.append(manifest)
            if not manifest.withdrawn:
                break
        return manifests

    with ThreadPoolExecutor(READS_AT_ONCE) as pool:
        return sorted(chain(*pool.map(newest, by_week.values())), key=lambda manifest: manifest.dataset)


def _files(target: Target, listed: Sequence[Manifest]) -> dict[str, bytes]:
    """Return the right content of each file by its path; empty for one that must be missing."""
    pointers = {f"{name}/{LATEST}": pointer(target, name) for name in sorted({one.dataset for one in listed})}
    return {**pointers, FEED: _feed(listed).encode(), INDEX: _page(listed).encode()}


def _content(target: Target, path: str) -> bytes:
    try:
        return target.read(path)
    except OSError:
        return b""


def _feed(listed: Sequence[Manifest]) -> str:
    datasets: dict[str, list[dict[str, object]]] = {}
    for manifest in listed:
        version = {name: getattr(manifest, name) for name in ("week", "version", "delivery", "rows", "bytes", "sha256")}
        version |= {"file": f"{manifest.path}/{manifest.file}", "published_at": manifest.created_at}
        if manifest.files:
            version["files"] = [asdict(one) | {"file": f"{manifest.path}/{one.file}"} for one in manifest.files]
        if manifest.withdrawn:
            version["withdrawn"] = asdict(manifest.withdrawn)
        if reason := outdated(manifest, listed):
            version["outdated"] = reason
        datasets.setdefault(manifest.dataset, []).append(version)
    return json.dumps({"version": FORMAT, "datasets": datasets}, indent=2, ensure_ascii=False) + "\n"


def _page(listed: Sequence[Manifest]) -> str:
    names = dict.fromkeys(manifest.dataset for manifest in listed)
    weeks: dict[str, dict[str, list[Manifest]]] = {}
    for manifest in listed:
        weeks.setdefault(manifest.week, {name: [] for name in names})[manifest.dataset].append(manifest)
    marks = {manifest.path: outdated(manifest, listed) for manifest in listed}
    return TEMPLATES.get_template(INDEX).render(names=names, weeks=sorted(weeks.items(), reverse=True), marks=marks)
