"""A fork of a lake in S3 whose catalog is behind REST: production keeps every object."""

from datetime import timedelta
from pathlib import Path
from urllib.parse import urlsplit

import boto3
import pyarrow as pa
from pyiceberg.view.metadata import SQLViewRepresentation, ViewRepresentation, ViewVersion

from python_common.catalog.catalog import load_catalog
from python_common.config.environment import changed_environment
from python_common.config.settings import Settings
from python_common.spark import thrift
from python_dev.review import data
from python_jobs import fork, fork_catalog
from tests.support.services.weed import KEY, SECRET, TABLE_BUCKET, Weed

DAY = timedelta(days=1)
ROWS = pa.table({"id": pa.array(range(10), pa.int64()), "name": [f"n{number}" for number in range(10)]})
STATEMENTS = (
    "insert into shop.orders values (100, 'new')",
    "delete from shop.orders where id < 2",
    "create or replace table shop.again using iceberg as select * from shop.orders",
    "call lake.system.rewrite_data_files(table => 'shop.orders', options => map('rewrite-all', 'true'))",
)


def objects(settings: Settings) -> dict[str, str]:
    """Return the objects of the two tables with their tags of content, but for metadata files: tagging adds some."""
    pages = boto3.client("s3").get_paginator("list_objects_v2").paginate(Bucket=urlsplit(settings.warehouse).netloc)
    tags = {entry["Key"]: entry["ETag"] for page in pages for entry in page.get("Contents", [])}
    return {key: tag for key, tag in tags.items() if "shop/" in key and not key.endswith(".metadata.json")}


def test_views_of_a_rest_catalog_read_tables_outside_of_the_fork(
    weed: Weed, offline_settings: Settings, tmp_path: Path
) -> None:
    conf, properties = tmp_path / "spark.conf", tmp_path / "rest.properties"
    # Production has its executors on a cluster.
    conf.write_text("spark.master spark://nowhere\n")
    # The catalog has views, and does not list them among what it has.
    properties.write_text(f"credential = {KEY}:{SECRET}\nscope = catalog\nview-endpoints-supported = true\n")
    properties.chmod(0o600)
    production = offline_settings.changed(
        catalog_uri=weed.catalog,
        catalog_properties=properties,
        warehouse=f"s3://{TABLE_BUCKET}",
        home=tmp_path / "home",
        spark_conf=conf,
    )
    with changed_environment({**weed.variables, "LAKEHOUSE_HOME": str(production.home)}):
        catalog = load_catalog(production)
        catalog.create_namespace_if_not_exists("shop")
        for name in ("orders", "items"):
            catalog.create_table(f"shop.{name}", ROWS.schema).append(ROWS)
        sql = ViewRepresentation(SQLViewRepresentation(type="sql", sql="select name from shop.orders", dialect="spark"))
        version = ViewVersion(**{"schema-id": 0, "representations": [sql], "default-namespace": ["shop"]})
        catalog.create_view("shop.names", pa.schema({"name": pa.string()}), version)
        try:
            before = objects(production)
            made = fork.create(production, "mine", DAY)
            assert objects(production) == before
            with thrift.connect(made.settings) as cursor:
                for statement in STATEMENTS:
                    thrift.rows(cursor, statement)
                for name, counts in {"orders": (9, 10), "items": (10, 10), "names": (9, 10)}.items():
                    select = f"select (select count(*) from lake.shop.{name}), (select count(*) from base.shop.{name})"
                    assert thrift.rows(cursor, select) == [counts]
            base, lake = (fork_catalog.opened(made.settings, name) for name in (fork_catalog.BASE_CATALOG, "lake"))
            scratch = made.directory / "scratch"
            change = data.compare(base.load_table("shop.orders"), lake.load_table("shop.orders"), ["id"], scratch)
            assert (change.added, change.removed, change.changed) == (1, 2, 0)
            assert objects(production) == before
            fork.drop(production, "mine")
            assert fork_catalog.tags(catalog) == []
            assert objects(production) == before
            assert catalog.load_table("shop.orders").scan().to_arrow().sort_by("id") == ROWS
        finally:
            for left in fork.forks(production):
                fork.drop(production, left.name)
            catalog.drop_view("shop.names")
            for name in ("orders", "items"):
                catalog.drop_table(f"shop.{name}")
