"""What the manifest of a file can say before it has a version: all that its table and its content tell."""

from datetime import UTC, datetime

from lakehouse.settings import CATALOG_NAME
from lakehouse.weeks import IsoWeek
from python_export.datasets.source import Source
from python_export.files import pii_scan
from python_export.files.compare import Facts
from python_export.publishing.manifest import FORMULA_GUARD, Column, Manifest, SmallGroups


def draft_of(source: Source, week: IsoWeek, facts: Facts) -> Manifest:
    """Return the manifest of a verified file as far as its table and its content tell it."""
    made = source.provenance
    threshold = made.small_group_threshold
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
            Column(name=column.name, type=column.type, nulls=facts.nulls[column.name]) for column in source.columns
        ],
        control_totals=facts.control_totals,
        totals_by=facts.totals_by,
        formula_escaped=facts.formula_escaped,
        formula_guard=FORMULA_GUARD,
        nul_removed=facts.nul_removed,
        warnings=facts.warnings(),
        pii_scan=dict.fromkeys(pii_scan.KINDS, 0),
        pii_scan_off=dict(source.dataset.unscanned),
        withheld_rows=facts.withheld,
        key_version=facts.key_version,
        quasi_identifiers=[field.name for field in source.dataset.fields if field.is_quasi_identifier],
        k_anonymity=facts.k_anonymity,
        persons={column: list(kinds) for column, kinds in source.dataset.persons.items()},
        small_groups=None
        if threshold is None or facts.suppressed is None
        else SmallGroups(threshold=threshold, suppressed=facts.suppressed),
        source_table=f"{CATALOG_NAME}.{source.dataset.table.schema}.{source.dataset.table.name}",
        source_snapshot_id=str(source.snapshot_id),
        source_snapshots=made.sources or None,
        week_column=source.dataset.week_column,
        dbt_invocation_id=made.invocation_id,
        git_commit=made.git_commit,
        created_at=_instant(datetime.now(UTC)),
    )


def _instant(moment: datetime) -> str:
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}"
