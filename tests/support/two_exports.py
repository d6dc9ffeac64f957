"""A dbt manifest with two exports over one mart, and a project that has it."""

import json
from pathlib import Path
from typing import Any

from python_dbt.manifest import DbtManifest
from python_dbt.manifest import parse as parse_manifest
from python_dbt.project import Project


def node(name: str, *reads: str, kind: str = "model", materialized: str = "table", **meta: Any) -> dict[str, Any]:
    return {
        "unique_id": f"{kind}.p.{name}",
        "resource_type": kind,
        "name": name,
        "alias": name,
        "schema": "exports" if name.startswith("exp") else "marts",
        "config": {"materialized": materialized, "meta": meta},
        "columns": {},
        "attached_node": None,
        "depends_on": {"nodes": [*reads]},
    }


def topic_source(name: str, **meta: Any) -> dict[str, Any]:
    named = {"unique_id": f"source.p.{name}", "resource_type": "source", "name": name}
    return named | {"schema": "bronze", "identifier": name, "config": {"meta": meta}}


def two_exports() -> dict[str, Any]:
    """Two exports over one mart; the mart comes from two topics, one through a view; a third topic is not in it."""
    export = {"key": ["id"], "order_by": ["at", "id"]}
    nodes = [
        node("exp_weekly__one", "model.p.fct_sales", export=dict(export)),
        node("exp_weekly__two", "model.p.fct_sales", "source.p.calendar", export=dict(export)),
        node("fct_sales", "model.p.stg_sales", "source.p.users", "seed.p.regions"),
        node("stg_sales", "source.p.sales", materialized="view"),
        node("regions", kind="seed", materialized="seed"),
        node("not_null_fct_sales", kind="test"),
    ]
    return {
        "nodes": {node["unique_id"]: node for node in nodes},
        "sources": {
            "source.p.sales": topic_source("sales", kafka={"topic": "shop.sales"}),
            "source.p.users": topic_source("users", kafka={"topic": "shop.users"}),
            "source.p.other": topic_source("other", kafka={"topic": "shop.other"}),
            "source.p.calendar": topic_source("calendar"),
        },
    }


def export_of(manifest: dict[str, Any], dataset: str) -> dict[str, Any]:
    """Return the config.meta.export of a dataset's model."""
    return manifest["nodes"][f"model.p.exp_weekly__{dataset}"]["config"]["meta"]["export"]


def parsed(manifest: dict[str, Any]) -> DbtManifest:
    return parse_manifest(json.dumps(manifest))


def project(directory: Path, manifest: dict[str, Any]) -> Project:
    (directory / "target").mkdir()
    (directory / "target" / "manifest.json").write_text(json.dumps(manifest))
    return Project(directory, {})
