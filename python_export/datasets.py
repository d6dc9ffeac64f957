"""What can be exported: the export models of dbt's manifest, with their lineage to the topics."""

import json
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lakehouse.errors import UserError
from python_export import dictionary
from python_export.dictionary import Field

PREFIX = "exp_weekly__"


@dataclass(frozen=True)
class Table:
    """The place of a table in the catalog."""

    schema: str
    name: str


@dataclass(frozen=True)
class Topic:
    """A Kafka topic that contributes to a dataset, and the bronze table it lands in."""

    name: str
    bronze: Table


@dataclass(frozen=True)
class Events:
    """Events to count for a week: rows of a table by the time in column `at` that meet a condition in SQL, if any."""

    table: Table
    at: str
    where: str


@dataclass(frozen=True)
class Dataset:
    """One export model.

    `key` identifies a row, `order_by` is the total order of the file (ascending, nulls first) and contains the key;
    `quarantined` and `late` are events that the week lacks, or that came after its end.
    """

    name: str
    model: str
    table: Table
    key: tuple[str, ...]
    order_by: tuple[str, ...]
    topics: tuple[Topic, ...]
    fields: tuple[Field, ...] = ()
    quarantined: Events | None = None
    late: Events | None = None


@dataclass(frozen=True)
class Project:
    """A dbt project: its directory and the environment its commands run in."""

    directory: Path
    env: Mapping[str, str] = field(repr=False)

    @property
    def target(self) -> Path:
        return self.directory / (self.env.get("DBT_TARGET_PATH") or "target")

    @property
    def log(self) -> Path:
        return self.directory / (self.env.get("DBT_LOG_PATH") or "logs") / "dbt.log"

    @property
    def manifest_path(self) -> Path:
        return self.target / "manifest.json"

    def commit(self) -> str | None:
        """Return the git commit of the project, marked `-dirty` if files differ from it; None where git knows none."""
        command = ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
        try:
            said = subprocess.run(command, cwd=self.directory, capture_output=True, text=True, check=True)
        except (OSError, subprocess.CalledProcessError):
            return None
        return said.stdout.strip()

    def manifest(self) -> dict[str, Any]:
        """Return dbt's manifest.

        Raises:
            UserError: no dbt command has written one yet.
        """
        path = self.manifest_path
        if not path.is_file():
            raise UserError(f"There is no dbt manifest at {path}", "Run `dbt build` once")
        return json.loads(path.read_text())


def load(project: Project) -> dict[str, Dataset]:
    """Return the datasets of a project by name.

    Raises:
        UserError: there is no manifest, no export model, or one does not declare its key and order.
    """
    manifest = project.manifest()
    models = [
        node
        for node in manifest["nodes"].values()
        if node["resource_type"] == "model" and node["name"].startswith(PREFIX)
    ]
    if not models:
        raise UserError(f"The dbt project has no model named {PREFIX}*", "Add one under models/exports")
    datasets = (_dataset(manifest, node) for node in models)
    return {dataset.name: dataset for dataset in sorted(datasets, key=lambda dataset: dataset.name)}


def choose(datasets: dict[str, Dataset], names: Iterable[str]) -> list[Dataset]:
    """Return the named datasets, or all when no name is given.

    Raises:
        UserError: a name is unknown.
    """
    chosen = list(dict.fromkeys(names)) or list(datasets)
    for name in chosen:
        if name not in datasets:
            raise UserError(f"There is no dataset {name}", f"Choose from {', '.join(datasets)}")
    return [datasets[name] for name in chosen]


def _dataset(manifest: dict[str, Any], node: dict[str, Any]) -> Dataset:
    declared = node["config"].get("meta", {}).get("export", {})
    key, order_by = tuple(declared.get("key", ())), tuple(declared.get("order_by", ()))
    if not key or not set(key) <= set(order_by):
        raise UserError(
            f"{node['name']} does not declare a total order",
            "Give config.meta.export a `key` and an `order_by` that contains it",
        )
    ancestors = _ancestors(manifest, node["unique_id"])
    sources = [manifest["sources"][name] for name in ancestors if name in manifest["sources"]]
    topics = [
        Topic(source["config"]["meta"]["kafka"]["topic"], Table(source["schema"], source["identifier"]))
        for source in sources
        if "kafka" in source["config"].get("meta", {})
    ]
    return Dataset(
        name=node["name"].removeprefix(PREFIX),
        model=node["name"],
        table=Table(node["schema"], node["alias"]),
        key=key,
        order_by=order_by,
        topics=tuple(sorted(topics, key=lambda topic: topic.name)),
        fields=dictionary.of_model(manifest, node),
        quarantined=_events(manifest, declared.get("quarantined")),
        late=_events(manifest, declared.get("late")),
    )


def _events(manifest: dict[str, Any], declared: dict[str, str] | None) -> Events | None:
    if declared is None:
        return None
    [node] = [node for node in manifest["nodes"].values() if node["name"] == declared["from"]]
    return Events(Table(node["schema"], node["alias"]), declared["at"], declared.get("where", ""))


def _ancestors(manifest: dict[str, Any], unique_id: str) -> list[str]:
    found: dict[str, None] = {}
    waiting = [unique_id]
    while waiting:
        for parent in manifest["parent_map"].get(waiting.pop(), []):
            if parent not in found:
                found[parent] = None
                waiting.append(parent)
    return sorted(found)
