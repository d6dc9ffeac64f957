"""A lake of release 0.5, upgraded as in docs/upgrading.md: one command line, one full refresh.

The tests of this module run in order and share a separate lake: what is tested is a history.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from local_stack.temporary import own_environment
from python_common.catalog.catalog import load_catalog
from python_common.config.environment import PROJECT_ROOT, TARGET
from python_common.config.settings import Settings
from tests.conftest import LAKEHOUSE, run_dbt, run_lakehouse, started
from tests.end_to_end.conftest import Lake, succeed

pytestmark = [pytest.mark.xdist_group("upgrade"), pytest.mark.stack, pytest.mark.long, pytest.mark.chaos]

RELEASE = "8433e67"
SERVICES = [word for name in ("kafka", "registry", "thrift") for word in ("--only", name)]
SIZE = ("--orders", "60", "--weeks", "1")
DATASETS = ("completed_orders", "customer_activity", "order_lines", "product_demand", "product_sales")


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the tree of release 0.5. It runs in this environment: its uv.lock and jars.lock are the same."""
    archive = subprocess.run(["git", "archive", RELEASE], cwd=PROJECT_ROOT, capture_output=True, check=False)
    assert archive.returncode == 0, f"commit {RELEASE} is missing: run `git fetch --unshallow`. {archive.stderr!r}"
    tree = tmp_path_factory.mktemp("release-0.5")
    subprocess.run(["tar", "--extract"], input=archive.stdout, cwd=tree, check=True)
    (tree / "spark_server" / "target").symlink_to(TARGET)
    return tree


def run_release(release: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command of release 0.5, with dbt's files in its tree, as they were."""
    env = {**os.environ, "PYTHONPATH": str(release)}
    command = [sys.executable, "-c", "from console.cli import main; main()", *arguments]
    return subprocess.run(command, cwd=release, env=env, capture_output=True, text=True, timeout=900, check=False)


@pytest.fixture(scope="module")
def lake(release: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    """A lake that release 0.5 has filled and published a week of, on a stack of this release."""
    with own_environment(tmp_path_factory.mktemp("lake-0.5")):
        try:
            succeed(
                {
                    " ".join(step): lambda step=step: run_release(release, *step)
                    for step in (
                        ("stack", "up", *SERVICES),
                        ("stack", "sample-data", *SIZE),
                        ("weekly",),
                        ("stack", "down"),
                    )
                }
            )
            yield Lake(started(*SERVICES))
        finally:
            run_lakehouse("stack", "down", "--wipe")


def versions(settings: Settings) -> dict[str, list[str]]:
    """Return the versions of each dataset's week."""
    root = Path(settings.export_root)
    return {name: sorted(path.parent.name for path in root.glob(f"{name}/*/v*/manifest.json")) for name in DATASETS}


def test_a_build_before_the_upgrade_is_refused_with_the_command(lake: Lake) -> None:
    assert versions(lake.settings) == {name: ["v1"] for name in DATASETS}
    refused = run_dbt("build", "--select", "int_payments_deduplicated")
    assert refused.returncode != 0
    assert "lakehouse pii rotate && lakehouse weekly --full-refresh" in refused.stdout


def key_versions(lake: Lake) -> set[str]:
    """Return the key versions of all pseudonyms in marts and exports; a row without a person has none."""
    in_use = set()
    for table in (*lake.tables("marts"), *lake.tables("exports")):
        rows = load_catalog(lake.settings).load_table(table).scan().to_arrow()
        if "key_version" in rows.column_names:
            in_use |= {*rows["key_version"].to_pylist()}
    return in_use - {None}


def test_one_command_line_upgrades_the_lake_and_compares_its_week(lake: Lake) -> None:
    assert key_versions(lake) == {"v1"}
    command = f"{LAKEHOUSE} pii rotate && {LAKEHOUSE} weekly --full-refresh"
    done = subprocess.run(["sh", "-c", command], cwd=PROJECT_ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert "  0 new records of 8 topics" in done.stderr
    assert key_versions(lake) == {"v2"}
    # Without a pseudonym the content is the same; what has suppressed groups is published once.
    unchanged = ("product_demand", "product_sales")
    assert versions(lake.settings) == {name: ["v1"] if name in unchanged else ["v1", "v2"] for name in DATASETS}


def test_an_upgraded_lake_goes_on_where_it_was(lake: Lake, release: Path) -> None:
    """Records that come after the upgrade land once, and no table needs another full refresh for them."""
    done = succeed(
        {
            "wave": lambda: run_release(release, "stack", "sample-data", *SIZE, "--wave", "2"),
            "ingest run": lambda: run_lakehouse("ingest", "run"),
            "ingest verify": lambda: run_lakehouse("ingest", "verify"),
            "increments": lambda: run_dbt("run", "--select", "config.materialized:incremental"),
            "export verify": lambda: run_lakehouse("export", "verify"),
        }
    )
    assert done["ingest verify"].stdout.count("all exactly once") == len(lake.tables("bronze"))
    assert key_versions(lake) == {"v2"}
