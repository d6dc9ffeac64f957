"""One export run: refuse or build, then unload, verify and publish each dataset of a week."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from pyhive import hive
from pyiceberg.catalog import Catalog

from lakehouse import thrift
from lakehouse.settings import CATALOG_NAME, Settings
from lakehouse.weeks import IsoWeek
from python_export import completeness, datasets
from python_export.build import build, require_week
from python_export.datasets import Project
from python_export.manifest import Manifest
from python_export.publish import Published, publish
from python_export.retain import retain
from python_export.source import THRESHOLD_PROPERTY, Source
from python_export.staging import staging
from python_export.target import open_target
from python_export.unload import unload
from python_export.verify import Facts, verify
from python_export.week_counts import week_counts


def run(
    settings: Settings,
    catalog: Catalog,
    project: Project,
    week: IsoWeek,
    names: Iterable[str] = (),
    *,
    with_build: bool = True,
    say: Callable[[str], None] = print,
    published: list[Published] | None = None,
) -> list[Published]:
    """Export a week of the named datasets, by default of all, and return what is public now.

    Every dataset is verified before the first is published. `say` gets one line per step, `published` each version as
    it becomes public: that of one dataset stays when the next one cannot be published.

    Raises:
        UserError: the input is wrong, the week is not complete, or a step failed.
    """
    chosen = datasets.choose(datasets.load(project), names)
    now = datetime.now(UTC)
    completeness.require_past(settings, week, now)
    with thrift.connect(settings) as cursor:
        completeness.require_complete(settings, cursor, catalog, chosen, week, now)
    target = open_target(settings)
    with staging(target.staging, say) as directory:
        target.clean()
        if with_build:
            say(f"{week}: building {', '.join(dataset.model for dataset in chosen)}")
            build(project, chosen, week)
            # What the models say of themselves now: dbt may just have read a newer project.
            chosen = datasets.choose(datasets.load(project), names)
        sources = require_week(catalog, chosen, week)
        with thrift.connect(settings) as cursor:
            counts = week_counts(cursor, chosen, week)
            staged = [
                _stage(cursor, source, directory / source.dataset.name, settings.export_bom, say) for source in sources
            ]
        made_from = {
            "dbt_invocation_id": project.manifest()["metadata"]["invocation_id"],
            "git_commit": project.commit(),
        }
        published = [] if published is None else published
        for source, (file, facts) in zip(sources, staged, strict=True):
            counted = {
                "quarantined": counts.get(source.dataset.quarantined),
                "late": counts.get(source.dataset.late),
            }
            draft = replace(draft_of(source, week, facts), bom=settings.export_bom, **counted, **made_from)
            scratch = directory / source.dataset.name / "scratch"
            one = publish(target, file, draft, source.dataset.fields, scratch)
            published.append(one)
            retain(catalog, one.manifest)
        return published


def _stage(
    cursor: hive.Cursor, source: Source, directory: Path, bom: bool, say: Callable[[str], None]
) -> tuple[Path, Facts]:
    """Return a verified file, alone in its directory, and its facts."""
    say(f"{source.dataset.name}: unloading")
    unloaded = unload(cursor, source, directory / "unloaded", bom)
    say(f"{source.dataset.name}: verifying")
    facts = verify(unloaded, source, directory / "verified")
    alone = directory / "version"
    alone.mkdir()
    return unloaded.rename(alone / unloaded.name), facts


def draft_of(source: Source, week: IsoWeek, facts: Facts) -> Manifest:
    """Return the manifest of a verified file as far as its table and its content tell it."""
    threshold = source.table.properties.get(THRESHOLD_PROPERTY)
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
            {"name": column.name, "type": column.type, "nulls": facts.nulls[column.name]} for column in source.columns
        ],
        control_totals=facts.control_totals,
        formula_escaped=facts.formula_escaped,
        warnings=facts.warnings(),
        pii_scan=facts.pii_scan,
        key_version=facts.key_version,
        small_groups={"threshold": int(threshold), "suppressed": facts.suppressed} if threshold else None,
        source_table=f"{CATALOG_NAME}.{source.dataset.table.schema}.{source.dataset.table.name}",
        source_snapshot_id=str(source.snapshot_id),
        dbt_invocation_id="",
        created_at=_instant(datetime.now(UTC)),
    )


def _instant(moment: datetime) -> str:
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}"
