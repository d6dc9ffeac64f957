"""Spark where the directory of Java's libraries allows no execution."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from python_common.config.environment import PROJECT_ROOT
from python_common.config.settings import Settings

pytestmark = pytest.mark.slow

ON_A_LAKE = """
from python_common.catalog.catalog import load_catalog
from python_common.config.settings import from_environment
from python_common.spark.session import LazySparkSession
settings = from_environment()
load_catalog(settings, create=True)
spark = LazySparkSession(settings)()
spark.sql("create namespace shop")
spark.sql("create table shop.orders using iceberg as select id from range(3)")
print(spark.table("shop.orders").count(), "rows")
"""
WITHOUT_EXECUTION = "mount --bind {0} {0} && mount -o remount,bind,noexec {0}"
WITH_EXECUTION = "mount --bind {0} {0} && mount -o remount,bind,exec {0}"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount")
@pytest.mark.parametrize("is_home_executable", [True, False])
def test_spark_runs_where_tmp_allows_no_execution(is_home_executable: bool, offline_settings: Settings) -> None:
    home = Path(offline_settings.warehouse).parent / "home"
    home.mkdir()
    variables = {
        "LAKEHOUSE_HOME": str(home),
        "KAFKA_BOOTSTRAP_SERVERS": offline_settings.kafka_bootstrap_servers,
        "SCHEMA_REGISTRY_URL": offline_settings.schema_registry_url,
        "LAKEHOUSE_WAREHOUSE": offline_settings.warehouse,
        "LAKEHOUSE_CATALOG_URI": offline_settings.catalog_uri,
    }
    # pytest's directories are in /tmp.
    mounts = [WITHOUT_EXECUTION.format("/tmp"), *([WITH_EXECUTION.format(home)] if is_home_executable else [])]
    command = ["unshare", "--mount", "sh", "-c", " && ".join([*mounts, 'exec "$@"']), "sh", sys.executable]
    finished = subprocess.run(
        [*command, "-c", ON_A_LAKE],
        cwd=PROJECT_ROOT,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    if is_home_executable:
        assert "3 rows" in finished.stdout, finished.stderr[-3000:]
    else:
        assert f"Neither /tmp nor {home}/tmp allows execution" in finished.stderr
