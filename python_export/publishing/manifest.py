"""The content of manifest.json, and the manifests of the versions that readers see."""

import json
from collections.abc import Collection, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, field
from typing import Annotated

from pydantic import ConfigDict, StringConstraints, TypeAdapter
from pydantic.dataclasses import dataclass

from python_common.errors import UserError
from python_export.datasets import snapshot
from python_export.publishing.layout import MANIFEST, READS_AT_ONCE, VERSION
from python_export.publishing.target import Target

# Raised when a field that is there already gets another meaning; not for a new field alone.
FORMAT = 1
# Fields that a newer release of the same format adds are ignored.
EXTENSIBLE = ConfigDict(extra="ignore")
# Which texts have a leading quote: 1 those that a spreadsheet runs as a formula, 2 also those that begin with quotes
# before that, so that the quote can be taken off again.
FORMULA_GUARD = 2


class ManifestError(UserError):
    """The manifest of one version cannot be read; those of the others can."""


class DamagedManifestError(ManifestError):
    """It is missing or damaged, not newer than this release."""


@dataclass(frozen=True, config=EXTENSIBLE)
class FileColumn(snapshot.TableColumn):
    """A column of the file, with the number of its NULLs."""

    nulls: int


@dataclass(frozen=True, config=EXTENSIBLE)
class File:
    """A file with the rows of the CSV, or the next ones, in another format; its path is like that of the CSV."""

    format: str
    file: Annotated[str, StringConstraints(pattern=r"^(lakehouse-[0-9a-f]{16}/)?[^/]+$")]
    bytes: int
    sha256: str
    rows: int


@dataclass(frozen=True, config=EXTENSIBLE)
class SmallGroups:
    """How many groups were too small to be shown, of fewer persons than the threshold."""

    threshold: int
    suppressed: int


@dataclass(frozen=True, config=EXTENSIBLE)
class Withdrawn:
    """When a version was withdrawn, and why."""

    on: str
    reason: str


@dataclass(frozen=True, kw_only=True, config=EXTENSIBLE)
class Manifest:
    """The content of manifest.json, in this order; docs/export.md explains the fields.

    Control totals are exact decimal text. The snapshot id is text, because it exceeds what JSON readers hold exactly.
    Older versions lack some of what has a default here.
    """

    manifest_format: int = FORMAT

    # Parts of paths: a manifest must not lead out of its export root.
    dataset: Annotated[str, StringConstraints(pattern=r"^\w+$")]
    week: Annotated[str, StringConstraints(pattern=r"^\d{4}-W\d\d$")]
    window_start: str
    window_end: str
    version: int
    # `<week>-<n>`; None in versions of releases before 0.7.
    delivery: Annotated[str | None, StringConstraints(pattern=r"^\d{4}-W\d\d-[1-9]\d*$")] = None
    supersedes: int | None
    reason: str = ""
    # Why another version was published of a dataset that has one per week; None if it was not.
    restated: str | None = None
    difference: dict[str, int] | None = None
    changed_columns: dict[str, int] = field(default_factory=dict)
    file: Annotated[str, StringConstraints(pattern=r"^((lakehouse-[0-9a-f]{16}/)?[^/]+\.csv)?$")]
    bytes: int
    sha256: str
    # The same rows in the other formats that the dataset declared.
    files: list[File] = field(default_factory=list)
    bom: bool = False
    rows: int
    key: list[str] = field(default_factory=list)
    order_by: list[str] = field(default_factory=list)
    columns: list[FileColumn]
    control_totals: dict[str, str]
    totals_by: dict[str, dict[str, dict[str, str]]] = field(default_factory=dict)
    formula_escaped: dict[str, int]
    formula_guard: int = 1
    nul_removed: dict[str, int] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    pii_scan: dict[str, int] | None = None
    pii_scan_off: dict[str, str] = field(default_factory=dict)
    withheld_rows: dict[str, int] = field(default_factory=dict)
    key_version: str | None = None
    quasi_identifiers: list[str] = field(default_factory=list)
    k_anonymity: int | None = None
    persons: dict[str, list[str]] | None = None
    small_groups: SmallGroups | None = None
    quarantined: int | None = None
    quarantined_by_reason: dict[str, int] = field(default_factory=dict)
    late: int | None = None
    dead_letters: int | None = None
    source_table: Annotated[str, StringConstraints(pattern=r"^[^.]+\.[^.]+\.[^.]+$")]
    source_snapshot_id: Annotated[str, StringConstraints(pattern=r"^\d+$")]
    # The snapshots of the tables that the source was built from, by name.
    source_snapshots: dict[str, str] | None = None
    # The source's column that has the label of the week; None if it held this week alone.
    week_column: str | None = None
    dbt_invocation_id: str
    git_commit: str | None = None
    created_at: str
    # None while the file is there.
    withdrawn: Withdrawn | None = None

    @property
    def path(self) -> str:
        """Where the version is under the export root."""
        return f"{self.dataset}/{self.week}/v{self.version}"

    @property
    def column_names(self) -> list[str]:
        """The columns of the file, in its order."""
        return [column.name for column in self.columns]

    @property
    def all_files(self) -> list["Manifest | File"]:
        """The CSV, as which the manifest counts, and the files of other formats."""
        return [self, *self.files]

    @property
    def source_identifier(self) -> str:
        """Schema and name of the table that the version was made from."""
        return self.source_table.partition(".")[2]

    def text(self) -> str:
        """Return it as JSON."""
        return json.dumps(asdict(self), indent=2, ensure_ascii=False) + "\n"


MANIFESTS = TypeAdapter(Manifest)


def outdated(manifest: Manifest, listed: Iterable[Manifest]) -> str:
    """Return which `listed` versions of the week have data that came later, empty if none does.

    Only a dataset with one version per week can lack it: any other one has a new version, or the same content.
    """
    if manifest.small_groups is None or manifest.withdrawn:
        return ""
    newer = {
        other.dataset: f"{other.dataset} v{other.version}"
        for other in listed
        if (other.week, other.withdrawn) == (manifest.week, None)
        and other.created_at > manifest.created_at
        and any((other.difference or {}).values())
    }
    newer.pop(manifest.dataset, None)
    return f"one version per week, from before the late data of {' and '.join(newer.values())}" if newer else ""


def published(
    target: Target, dataset: str | None = None, week: str | None = None, with_withdrawn: bool = False
) -> list[Manifest]:
    """Return the manifests of all versions, or of one dataset or week, by dataset, week and version.

    Without those that cannot be read and, by default, those that are withdrawn.
    """
    manifests, _ = read_all(target, paths(target, [dataset] if dataset else None, week))
    return [one for one in manifests.values() if with_withdrawn or not one.withdrawn]


def read_all(target: Target, versions: Collection[str]) -> tuple[dict[str, Manifest], dict[str, ManifestError]]:
    """Return the manifests of versions by their paths, in that order, and the error of each that cannot be read."""

    def manifest_or_error(path: str) -> Manifest | ManifestError:
        try:
            return read(target, path)
        except ManifestError as error:
            return error

    with ThreadPoolExecutor(READS_AT_ONCE) as pool:
        by_path = dict(zip(versions, pool.map(manifest_or_error, versions), strict=True))
    manifests = {path: one for path, one in by_path.items() if isinstance(one, Manifest)}
    return manifests, {path: one for path, one in by_path.items() if isinstance(one, ManifestError)}


def readable(target: Target, versions: Iterable[str]) -> Iterator[Manifest]:
    """Yield the manifests of versions by their paths, one by one, without those that cannot be read."""
    for path in versions:
        with suppress(ManifestError):
            yield read(target, path)


def next_delivery(target: Target, week: str) -> str:
    """Return the name of a week's next delivery, `<week>-<n>`: n is one more than the highest of its manifests."""
    named = [manifest.delivery for manifest in published(target, week=week, with_withdrawn=True) if manifest.delivery]
    return f"{week}-{max((int(name.rpartition('-')[2]) for name in named), default=0) + 1}"


def newest(target: Target, dataset: str, week: str | None = None) -> Manifest | None:
    """Return the newest manifest of a week that can be read, by default of the newest week, or None without any.

    What was withdrawn does not count.
    """
    manifests = readable(target, reversed(paths(target, [dataset], week)))
    return next((manifest for manifest in manifests if not manifest.withdrawn), None)


def read(target: Target, path: str) -> Manifest:
    """Return the manifest of the version at a path.

    Raises:
        DamagedManifestError: it is missing or damaged.
        ManifestError: its store fails, or a newer release wrote it, in a form that this one does not know.
    """
    try:
        content = json.loads(target.read(f"{path}/{MANIFEST}"))
        if int(content.get("manifest_format", FORMAT)) <= FORMAT:
            return MANIFESTS.validate_python(content)
    # A ValidationError is a ValueError, and so is what json raises.
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError, ValueError, TypeError, AttributeError):
        raise DamagedManifestError(
            f"{target.address(path)}/{MANIFEST} is missing or damaged",
            "Restore it from a backup, or let it be: the next content of that week is its next version",
        ) from None
    except OSError as error:
        raise ManifestError(
            f"{target.address(path)}/{MANIFEST} cannot be read ({error.strerror})",
            "Run it again when the store answers",
        ) from None
    raise ManifestError(
        f"{target.address(path)}/{MANIFEST} was written by a newer release",
        "Use that release or a later one for this export root",
    )


def paths(target: Target, datasets: Iterable[str] | None = None, week: str | None = None) -> list[str]:
    """Return where versions are, all or those of some datasets or a week, by dataset, week and version."""
    prefixes = [f"{dataset}/" for dataset in dict.fromkeys(datasets or ())] or [""]
    listed = [path for prefix in prefixes for path in target.versions(prefix)]
    matches = [match for path in listed if (match := VERSION.fullmatch(path)) and week in (None, match["week"])]
    ordered = sorted(matches, key=lambda match: (match["dataset"], match["week"], int(match["number"])))
    return [match[0] for match in ordered]
