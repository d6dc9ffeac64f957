"""A table that tests of reviews change, and a project of it before and after."""

from dataclasses import replace

from python_dbt.manifest import DbtManifest, Node
from python_dev.review.scope import Side

SALES = Node(
    "model.shop.sales",
    "model",
    "sales",
    "marts",
    alias="sales",
    materialized="table",
    unique_key="id",
    partition_by="week",
)


def sides_of_change(*others: Node) -> list[Side]:
    """Return a project of `sales` and other nodes, before and after its SQL changes."""
    versions = (replace(SALES, raw_code=sql, compiled_code=sql) for sql in ("select 1", "select 2"))
    return [Side(DbtManifest({node.unique_id: node for node in (one, *others)}), {}) for one in versions]
