"""A table that tests of reviews change."""

from python_dbt.manifest import Node

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
