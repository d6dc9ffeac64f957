"""Makes a verified file public: a version that appears as a whole, then the pointer to the newest one.

A version never changes, because the next content gets the next number; docs/export.md has the reasons.
"""

import json
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from python_common.catalog import property_keys
from python_common.config.settings import CATALOG_NAME
from python_common.errors import UserError
from python_common.weeks import IsoWeek
from python_export.csv import pii_scan
from python_export.csv.facts import Facts
from python_export.datasets import contract, dictionary
from python_export.datasets.declared import Dataset
from python_export.datasets.dictionary import Field
from python_export.datasets.snapshot import Source
from python_export.publishing import formats
from python_export.publishing.difference import ComparisonError, difference
from python_export.publishing.layout import CHANGES, LATEST, MANIFEST, upload_folder
from python_export.publishing.manifest import (
    FORMULA_GUARD,
    DamagedManifestError,
    FileColumn,
    Manifest,
    SmallGroups,
    Withdrawn,
    newest,
    outdated,
    paths,
    published,
    read,
)
from python_export.publishing.target import Target, digest


@dataclass(frozen=True)
class Published:
    """A version that readers can see; `file` is a path or URL, `unchanged` if it was there before this run."""

    manifest: Manifest
    file: str
    unchanged: bool


class WithdrawnContentError(UserError):
    """The newest version of a week, which was withdrawn, had the same content."""


def publish(
    target: Target,
    staged: Path,
    draft: Manifest,
    described: Iterable[Field],
    scratch: Path,
    tag_snapshot: Callable[[Manifest], None] = lambda _: None,
    other_formats: Collection[str] = (),
    review: Callable[[Manifest], Manifest] = lambda draft: draft,
) -> Published:
    """Publish a staged file with its manifest and dictionary, and return its version.

    `draft` describes the file; what depends on the version and on what it supersedes is filled in here, file, bytes and
    sha256 too. A file with the content of the week's newest version adds nothing; `review` may refuse another. `staged`
    is alone in a directory of the target's staging, which is moved; `scratch` is another directory. `tag_snapshot` is
    called before readers see a version, so that none is public that it has failed for. It also has its rows in
    `other_formats`.

    Raises:
        WithdrawnContentError: the week's newest version had this content, and `draft` restates nothing.
        UserError: another export has published other content first, or a newer release has published the week; or it
            has its one version, because small groups are suppressed, and `draft` restates nothing.
    """
    sha256 = digest(staged)
    versions = paths(target, [draft.dataset], draft.week)
    before = None
    if versions:
        # A damaged one does not hold up the new one.
        with suppress(DamagedManifestError):
            before = read(target, versions[-1])
    if before and before.sha256 == sha256 and not before.withdrawn:
        tag_snapshot(before)
        return unchanged(target, before)
    if before and before.sha256 == sha256 and before.withdrawn and not draft.restated:
        raise WithdrawnContentError(
            f"{before.path} had this content and was withdrawn on {before.withdrawn.on}: {before.withdrawn.reason}",
            "Correct the data: other content is the next version",
        )
    if versions and draft.small_groups and not draft.restated:
        # The run saw no version when it decided: the difference of two would show who is in a small group.
        raise UserError(
            f"{draft.dataset} {draft.week} has its one version, which another export has published meanwhile",
            f"Run `lakehouse export run {draft.dataset} --restate --week {draft.week} --reason ...` for another one",
        )
    draft = review(replace(draft, sha256=sha256))

    supersedes = int(versions[-1].rpartition("/v")[2]) if versions else None
    version = (supersedes or 0) + 1
    manifest = replace(
        draft,
        version=version,
        supersedes=supersedes,
        file=f"{upload_folder()}/{draft.dataset}_{draft.week}_v{version}.csv",
        bytes=staged.stat().st_size,
    )
    if versions:
        manifest = _with_difference(target, before, manifest, staged, scratch)
    if draft.restated:
        manifest = replace(manifest, reason=f"restated, {manifest.reason}: {draft.restated}")
    file = staged.parent / manifest.file
    file.parent.mkdir(exist_ok=True)
    staged.rename(file)
    manifest = replace(manifest, files=formats.write(file, manifest, other_formats, scratch))
    described = _complete(described, manifest)
    file.with_name(dictionary.FILE).write_text(dictionary.text(described, manifest.k_anonymity))
    tag_snapshot(manifest)
    try:
        target.add(file.parent, manifest.path, manifest.text().encode())
    except FileExistsError:
        first = newest(target, draft.dataset, draft.week)
        if first and first.sha256 == sha256:
            tag_snapshot(first)
            return unchanged(target, first)
        raise UserError(
            f"Another export has published {target.address(manifest.path)} with other content",
            "Run the export again: it compares with what is there then",
        ) from None
    point_to_newest(target, draft.dataset)
    return Published(manifest, target.address(f"{manifest.path}/{manifest.file}"), unchanged=False)


def _with_difference(
    target: Target, before: Manifest | None, manifest: Manifest, staged: Path, scratch: Path
) -> Manifest:
    """Return the manifest of a new version with what changed since the old one, None if its manifest is damaged.

    What changed since a damaged one is unknown.
    """
    if before and before.withdrawn:
        return replace(manifest, reason=f"v{before.version} was withdrawn")
    try:
        if before is None:
            raise FileNotFoundError(MANIFEST)
        before_file = target.fetch(f"{before.path}/{before.file}", scratch)
        if digest(before_file) != before.sha256:
            raise ValueError(before.file)
        change = difference(before, before_file, manifest, staged, scratch)
    except (FileNotFoundError, ValueError, ComparisonError):
        warning = f"v{manifest.supersedes} is damaged, so it is not known what changed since"
        return replace(manifest, reason=warning, warnings=[*manifest.warnings, warning])
    manifest = replace(manifest, difference=change.counts(), changed_columns=change.columns)
    return replace(manifest, reason=_reason(before, manifest))


def _reason(before: Manifest, after: Manifest) -> str:
    """Return what made another version necessary, by the two manifests."""
    thresholds = [groups.threshold if groups else None for groups in (before.small_groups, after.small_groups)]
    added = [column for column in after.column_names if column not in before.column_names]
    removed = [column for column in before.column_names if column not in after.column_names]
    reasons = {
        f"added columns: {' and '.join(added)}": added,
        f"removed columns: {' and '.join(removed)}": removed,
        "another order of columns": not added and not removed and before.column_names != after.column_names,
        "another version of the masking key": before.key_version != after.key_version,
        "another threshold for small groups": thresholds[0] != thresholds[1],
        "another encoding": before.bom != after.bom,
        "late or corrected data": any((after.difference or {}).values()),
    }
    return ", ".join(reason for reason, holds in reasons.items() if holds) or "another order or form of the same rows"


def _complete(described: Iterable[Field], manifest: Manifest) -> list[Field]:
    """Return a field for every column of the file, in its order and with its type."""
    by_name = {field.name: field for field in described}
    return [replace(by_name.get(column.name, Field(column.name, "")), type=column.type) for column in manifest.columns]


def unchanged(target: Target, manifest: Manifest) -> Published:
    """Return a version that was there before."""
    # A run that died between version and pointer is healed here.
    point_to_newest(target, manifest.dataset)
    return Published(manifest, target.address(f"{manifest.path}/{manifest.file}"), unchanged=True)


def point_to_newest(target: Target, dataset: str) -> None:
    """Write latest.json: the newest version of the newest week. Late data for an older week does not move it back.

    Where nothing is left it is deleted.
    """
    path = f"{dataset}/{LATEST}"
    written: bytes | None = None
    # Another machine may have published meanwhile, and pointed to it before this one did.
    while (content := pointer(target, dataset)) != written:
        if content:
            target.put(path, content)
        else:
            target.delete(path)
        written = content


def put_contract(target: Target, dataset: Dataset) -> None:
    """Write the contract of a dataset, unless it is there."""
    path, content = f"{dataset.name}/{contract.FILE}", contract.text(dataset).encode()
    with suppress(FileNotFoundError):
        if target.read(path) == content:
            return
    target.put(path, content)


def pointer(target: Target, dataset: str) -> bytes:
    """Return the content of latest.json, with `outdated` if the week has later data; empty where no version is left."""
    manifest = newest(target, dataset)
    if manifest is None:
        return b""
    reason = outdated(manifest, published(target, week=manifest.week)) if manifest.small_groups else ""
    content = {
        "dataset": manifest.dataset,
        "week": manifest.week,
        "version": manifest.version,
        "file": f"{manifest.week}/v{manifest.version}/{manifest.file}",
        "manifest": f"{manifest.week}/v{manifest.version}/{MANIFEST}",
        "sha256": manifest.sha256,
    } | ({"outdated": reason} if reason else {})
    return f"{json.dumps(content, indent=2)}\n".encode()


def withdraw(target: Target, path: str, reason: str) -> None:
    """Withdraw the version at a path; done again, it completes what was cut off.

    The manifest's facts about the file's values go with the file, and so do its keys in changes.csv, which releases
    before 0.7 wrote beside the next version. Readers find the newest version that is left.

    Raises:
        ManifestError: the manifest cannot be read.
    """
    manifest = read(target, path)
    # First: then a command that was cut off finds this version, and does it again.
    for changes in changes_after(target, manifest):
        target.delete(changes)
    if not manifest.withdrawn:
        withdrawn = Withdrawn(on=f"{datetime.now(UTC):%Y-%m-%d}", reason=reason)
        manifest = replace(manifest, withdrawn=withdrawn, control_totals={}, totals_by={})
    target.put(f"{path}/{MANIFEST}", manifest.text().encode())
    for file in data_files(target, path):
        target.delete(file)
    point_to_newest(target, manifest.dataset)


def data_files(target: Target, path: str) -> list[str]:
    """Return the files of a version but for its manifest."""
    return [file for file in target.files(path) if file != f"{path}/{MANIFEST}"]


def changes_after(target: Target, manifest: Manifest) -> list[str]:
    """Return where the next version has the changes.csv of a release before 0.7, which lists keys of this one."""
    following = replace(manifest, version=manifest.version + 1).path
    return [file for file in target.files(following) if file.endswith(f"/{CHANGES}")]


def build_manifest(source: Source, week: IsoWeek, facts: Facts, warnings: Iterable[str] = ()) -> Manifest:
    """Return the manifest of a verified file, without what depends on its version and the week's events."""
    made = source.summary
    threshold = int(made.get(property_keys.SMALL_GROUP_THRESHOLD) or 0)
    return Manifest(
        dataset=source.dataset.name,
        week=str(week),
        window_start=_instant(week.start),
        window_end=_instant(week.end),
        version=0,
        supersedes=None,
        reason="first version",
        file="",
        bytes=0,
        sha256="",
        rows=facts.rows,
        key=list(source.dataset.key),
        order_by=list(source.dataset.order_by),
        columns=[
            FileColumn(name=column.name, type=column.type, nulls=facts.nulls[column.name]) for column in source.columns
        ],
        control_totals=facts.control_totals,
        totals_by=facts.totals_by,
        formula_escaped=facts.formula_escaped,
        formula_guard=FORMULA_GUARD,
        nul_removed=facts.nul_removed,
        warnings=[*facts.warnings(), *warnings],
        pii_scan=dict.fromkeys(pii_scan.KINDS, 0),
        pii_scan_off=dict(source.dataset.unscanned),
        withheld_rows=facts.withheld,
        key_version=facts.key_version,
        quasi_identifiers=[field.name for field in source.dataset.fields if field.is_quasi_identifier],
        k_anonymity=facts.k_anonymity,
        persons={column: list(kinds) for column, kinds in source.dataset.persons.items()},
        small_groups=SmallGroups(threshold=threshold, suppressed=facts.suppressed)
        if threshold and facts.suppressed is not None
        else None,
        source_table=f"{CATALOG_NAME}.{source.dataset.table}",
        source_snapshot_id=str(source.snapshot_id),
        source_snapshots=json.loads(made.get(property_keys.SOURCES) or "{}") or None,
        week_column=source.dataset.week_column,
        dbt_invocation_id=made.get(property_keys.INVOCATION_ID) or "",
        git_commit=made.get(property_keys.GIT_COMMIT) or None,
        created_at=_instant(datetime.now(UTC)),
    )


def _instant(moment: datetime) -> str:
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}"
