"""What stands in manifest.json, and the manifests of the versions that readers see."""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field

from lakehouse.errors import UserError
from python_export.target import MANIFEST, VERSION, Target


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """What stands in manifest.json, in this order.

    `rows` does not count the header; a column has name, type and number of nulls; control totals are exact decimal
    text; the snapshot id is text because it exceeds what JSON readers hold exactly. `difference` counts the rows that
    the superseded version has otherwise, `quarantined` the week's events that quality rules keep out, `late` those
    that came after its end. Versions of release 0.3 lack what has a default here.
    """

    dataset: str
    week: str
    window_start: str
    window_end: str
    version: int
    supersedes: int | None
    reason: str = ""
    difference: dict[str, int] | None = None
    file: str
    bytes: int
    sha256: str
    bom: bool = False
    rows: int
    key: list[str] = field(default_factory=list)
    order_by: list[str] = field(default_factory=list)
    columns: list[dict[str, str | int]]
    control_totals: dict[str, str]
    formula_escaped: dict[str, int]
    warnings: list[str] = field(default_factory=list)
    pii_scan: dict[str, int] | None = None
    key_version: str | None = None
    small_groups: dict[str, int] | None = None
    quarantined: int | None = None
    late: int | None = None
    source_table: str
    source_snapshot_id: str
    dbt_invocation_id: str
    git_commit: str | None = None
    created_at: str

    @property
    def path(self) -> str:
        """Where the version is under the export root."""
        return f"{self.dataset}/{self.week}/v{self.version}"

    @property
    def column_names(self) -> list[str]:
        """The columns of the file, in its order."""
        return [str(column["name"]) for column in self.columns]

    def text(self) -> str:
        """Return it as JSON."""
        return json.dumps(asdict(self), indent=2, ensure_ascii=False) + "\n"


def published(target: Target, dataset: str | None = None, week: str | None = None) -> list[Manifest]:
    """Return the manifests of all versions, or of one dataset or week, by dataset, week and version.

    Raises:
        UserError: a manifest is missing or damaged.
    """
    return [read(target, path) for path in paths(target, [dataset] if dataset else None, week)]


def newest(target: Target, dataset: str, week: str | None = None) -> Manifest | None:
    """Return the manifest of the newest version of a week, by default of the newest week, or None without any.

    Raises:
        UserError: the manifest is missing or damaged.
    """
    found = paths(target, [dataset], week)
    return read(target, found[-1]) if found else None


def read(target: Target, path: str) -> Manifest:
    """Return the manifest of the version at a path.

    Raises:
        UserError: it is missing or damaged.
    """
    try:
        manifest = Manifest(**json.loads(target.read(f"{path}/{MANIFEST}")))
        _require_shape(manifest)
        return manifest
    except (OSError, LookupError, ValueError, TypeError, AttributeError):
        raise UserError(
            f"{target.address(path)}/{MANIFEST} is missing or damaged",
            "Restore it from a backup, or move its directory away to publish that version again",
        ) from None


def _require_shape(manifest: Manifest) -> None:
    """Look up what users of a manifest look up within its fields; what is not there raises Python's own error."""
    for column in manifest.columns:
        _ = column["name"], column["type"], column["nulls"]
    _, _schema, _table = manifest.source_table.split(".")
    int(manifest.source_snapshot_id)


def paths(target: Target, datasets: Iterable[str] | None = None, week: str | None = None) -> list[str]:
    """Return where versions are, all or those of some datasets or a week, by dataset, week and version."""
    found = [match for path in target.versions() if (match := VERSION.fullmatch(path))]
    chosen = [each for each in found if not datasets or each["dataset"] in datasets]
    ordered = sorted(chosen, key=lambda each: (each["dataset"], each["week"], int(each["number"])))
    return [each[0] for each in ordered if week in (None, each["week"])]
