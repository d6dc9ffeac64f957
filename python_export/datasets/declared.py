"""The datasets: the export models of dbt's manifest, with their lineage to the topics."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from decimal import Decimal
from typing import Annotated, Literal, get_args

import pydantic.dataclasses
import yaml
from pydantic import ConfigDict, Field, TypeAdapter

from python_common.errors import UserError
from python_dbt.manifest import DbtManifest, Node
from python_dbt.project import Project
from python_export.datasets import dictionary
from python_export.datasets.report_spec import ReportSpec, read_meta
from python_export.variables import Choices
from python_ingest.declare.topics import Declaration

PREFIX = "exp_weekly__"
AUDIENCE = Choices.variable("audience")
Format = Literal["csv", "csv.gz", "parquet", "xlsx"]
FORMATS: tuple[Format, ...] = get_args(Format)


@pydantic.dataclasses.dataclass(frozen=True, kw_only=True, config=ConfigDict(extra="forbid", validate_by_name=True))
class Events:
    """Events to count for a week: rows of a model by the time in column `at` that meet a condition in SQL, if any.

    They are counted by the SQL `by`. With `seen_at` they are late: that time is not before the week's end.
    """

    model: Annotated[str, Field(alias="from")]
    table: str = ""
    at: str
    where: str = ""
    by: str = ""
    seen_at: str | None = None


@pydantic.dataclasses.dataclass(frozen=True, kw_only=True)
class Export:
    """The config.meta.export of a model; models/meta.schema.json explains the keys, and lint refuses others.

    Others are ignored here: before the first build of an upgrade the manifest is that of the former release.
    """

    key: Annotated[tuple[str, ...], Field(min_length=1)]
    order_by: tuple[str, ...]
    counts: tuple[Events, ...] = ()
    audience: str = ""
    suppressed: str | None = None
    formats: tuple[Format, ...] = ()
    display: ReportSpec = ReportSpec()
    hold: Mapping[str, Annotated[Decimal, Field(gt=1)]] = field(default_factory=dict)


EXPORT, TOPIC = TypeAdapter(Export), TypeAdapter(Declaration)


@dataclass(frozen=True, kw_only=True)
class Dataset(Export):
    """One export model, with what it declares; `formats` without CSV, which every dataset has.

    `key` identifies a row; `order_by` is the total order of the file (ascending, nulls first) and contains the key.
    `counts` are the events that the week lacks, or that came after its end. `lineage` names what file and manifest come
    from: topics, and dbt's nodes by unique id, this model too. The manifest has totals by the values of each column in
    `totals_by`, that of the chart. `unscanned` are the columns that the search for personal data skips, with the
    reason. `week_column` has the week of a row, None if the table holds one week; `at` is the column of its event time,
    dbt's config event_time. `persons` are the columns that identify a row's person, with the kinds of persons: by id or
    pseudonym, as it is or behind a channel's name and a dash. `suppressed` is the column that marks rows whose group is
    too small to be shown: such a dataset is published once per week, because two versions reveal small groups by their
    difference. `description` is the model's. `hold` are the factors by which figures may be off the weeks before.
    """

    name: str
    model: str
    table: str
    topics: tuple[Declaration, ...]
    fields: tuple[dictionary.Field, ...] = ()
    unscanned: Mapping[str, str] = field(default_factory=dict)
    description: str = ""
    lineage: frozenset[str] = frozenset()
    week_column: str | None = None
    at: str | None = None
    totals_by: tuple[str, ...] = ()
    persons: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def models(self) -> tuple[str, ...]:
        """The models that file and manifest are read from."""
        return (self.model, *(events.model for events in self.counts))


def load(project: Project) -> dict[str, Dataset]:
    """Return the datasets of a project by name, with LAKEHOUSE_EXPORT_AUDIENCE those that are meant for it.

    Raises:
        UserError: there is no manifest, no export model, or one does not declare its key and order.
    """
    audience = Choices.of(project.env).audience
    datasets = of_manifest(project.manifest())
    meant = {name: dataset for name, dataset in datasets.items() if audience in ("", dataset.audience)}
    if not meant:
        audiences = sorted({dataset.audience for dataset in datasets.values()} - {""})
        raise UserError(
            f"{AUDIENCE} is '{audience}', which no export is meant for",
            f"Set it to one of {', '.join(audiences)}" if audiences else "Declare config.meta.export.audience",
        )
    return meant


def title(project: Project) -> str:
    """Return the name of a project in words."""
    name: str = yaml.safe_load((project.directory / "dbt_project.yml").read_text())["name"]
    return name.replace("_", " ").capitalize()


def of_manifest(manifest: DbtManifest) -> dict[str, Dataset]:
    """Return the datasets of dbt's manifest by name; raises as `load`."""
    models = [node for node in manifest.models if node.name.startswith(PREFIX)]
    if not models:
        raise UserError(f"The dbt project has no model named {PREFIX}*", "Add one under models/exports")
    datasets = (_dataset(manifest, node) for node in models)
    return {dataset.name: dataset for dataset in sorted(datasets, key=lambda dataset: dataset.name)}


def choose(datasets: dict[str, Dataset], names: Iterable[str]) -> list[Dataset]:
    """Return the named datasets, or all when no name is given; a UserError for an unknown name."""
    chosen = list(dict.fromkeys(names)) or list(datasets)
    for name in chosen:
        if name not in datasets:
            raise UserError(f"There is no dataset {name}", f"Choose from {', '.join(datasets)}")
    return [datasets[name] for name in chosen]


def _dataset(manifest: DbtManifest, node: Node) -> Dataset:
    export = read_meta(EXPORT, node.meta.get("export", {}), f"config.meta.export of {node.name}")
    if not {*export.key} <= {*export.order_by}:
        raise UserError(
            f"{node.name} does not declare a total order",
            "Give config.meta.export a `key` and an `order_by` that contains it",
        )
    ancestors = manifest.ancestors(node.unique_id)
    topics = [_topic(source) for source in manifest.landed if source.unique_id in ancestors]
    counted = {events.model: _counted(manifest, node, events.model) for events in export.counts}
    declared = {one.name: getattr(export, one.name) for one in fields(Export)} | {
        "counts": tuple(replace(events, table=counted[events.model].table) for events in export.counts),
        "formats": tuple(form for form in FORMATS[1:] if form in export.formats),
    }
    return Dataset(
        **declared,
        name=node.name.removeprefix(PREFIX),
        model=node.name,
        table=node.table,
        topics=tuple(sorted(topics, key=lambda topic: topic.topic)),
        fields=dictionary.of_model(node),
        unscanned=_unscanned(node),
        description=" ".join(node.description.split()),
        lineage=frozenset(
            [
                node.unique_id,
                *ancestors,
                *(model.unique_id for model in counted.values()),
                *(topic.topic for topic in topics),
            ]
        ),
        week_column=node.partition_by,
        at=node.config.get("event_time"),
        totals_by=(export.display.chart.by,) if export.display.chart else (),
        persons={name: tuple(kinds) for name, column in node.columns.items() if (kinds := column.meta.get("subjects"))},
    )


def _counted(manifest: DbtManifest, node: Node, model: str) -> Node:
    try:
        return manifest.named(model)
    except ValueError:
        raise UserError(f"{node.name} counts events of {model}, which is no model", "Correct it") from None


def _unscanned(node: Node) -> dict[str, str]:
    """Return the columns with a reason not to be scanned, `off: <reason>`; any other setting is none."""
    settings = {name: str(column.meta.get("pii_scan", "")).partition(":") for name, column in node.columns.items()}
    return {name: reason.strip() for name, (word, _, reason) in settings.items() if word == "off" and reason.strip()}


def _topic(source: Node) -> Declaration:
    """Return a topic and its table, with what the exporter reads of the declaration."""
    kafka = source.meta["kafka"]
    read = {name: kafka.get(name) for name in ("topic", "max_dead_letters", "producer", "silence")}
    table = {"schema": source.schema, "table": source.identifier}
    return read_meta(TOPIC, read | table, f"config.meta.kafka of {source.name}")


def origins_of(manifest: DbtManifest, table: str) -> list[str]:
    """Return the unique ids from which wrong numbers of a table come: its model or source.

    Of a table that no dataset reads, such as a list of excluded rows, they are its parents. Of an unknown table they
    are the models of all datasets.
    """
    ids = {node.alias: node.unique_id for node in manifest.models}
    ids |= {source.identifier: source.unique_id for source in manifest.sources.values()}
    exported = of_manifest(manifest).values()
    if table not in ids:
        return [ids[dataset.table.rpartition(".")[2]] for dataset in exported]
    if any(ids[table] in dataset.lineage for dataset in exported):
        return [ids[table]]
    return manifest.nodes[ids[table]].parents if ids[table] in manifest.nodes else [ids[table]]
